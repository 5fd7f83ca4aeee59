package effects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// InUseError says that processes have a function open, so that it can't leave its driver.
type InUseError struct {
	Claim   plan.Ref
	Address pci.Address
	Holders []vfio.Holder
	// Open is a VFIO node that the kernel reports as open, although no process is found that has it open. If Open is
	// set, Holders is empty.
	Open string
	// Abandoned has, by PID, the sandboxes of those holders that are VMs without a shim: deleting the pod does not end
	// such a VM.
	Abandoned map[int]string
}

func (e *InUseError) Error() string {
	if e.Open != "" {
		return fmt.Sprintf("claim %s: %s is in use: the kernel says that %s is open, and no process is found that has it: a process that ends may still be "+
			"closing it, or has passed it on; try again, and if that does not help, end the processes of its last pod, or drain and reboot the node",
			e.Claim, e.Address, e.Open)
	}
	names := make([]string, len(e.Holders))
	for i, h := range e.Holders {
		names[i] = h.String()
	}
	text := fmt.Sprintf("claim %s: %s is in use by %s: %s", e.Claim, e.Address, strings.Join(names, ", "), e.advice())
	if slices.ContainsFunc(e.Holders, func(h vfio.Holder) bool { return device.IsShared(h.Node) }) {
		text += "; a process that has a shared node of the driver open may use each of its GPUs, so bind GPUs for VMs at start-up (policy: bound)"
	}
	return text
}

// Code returns the code that conditions and Events show.
func (e *InUseError) Code() rule.Code { return rule.InUse }

// advice says how to end the holders. The refused pod may be the one whose VM holds the device. If that VM has no shim,
// deleting the pod does not end it. The minute in the text is for the runtime's clean-up after the shim, which may
// still be in progress (runtimeclass/README.md).
func (e *InUseError) advice() string {
	var words []string
	if slices.ContainsFunc(e.Holders, func(h vfio.Holder) bool { return e.Abandoned[h.PID] == "" && h.Comm != pluginComm }) {
		words = append(words, "stop it (delete its pod) and try again")
	}
	if slices.ContainsFunc(e.Holders, func(h vfio.Holder) bool { return h.Comm == pluginComm }) {
		words = append(words, "another instance of the plugin resets the device and keeps others from it for a few minutes at most; the next try continues then")
	}
	for _, pid := range slices.Sorted(maps.Keys(e.Abandoned)) {
		words = append(words, fmt.Sprintf("process %d is the VM of sandbox %s, whose shim no longer runs, so deleting the pod does not end it: if the process exists "+
			"for more than a minute, run `kill -9 %d` on the node and try again", pid, e.Abandoned[pid], pid))
	}
	return strings.Join(words, "; ")
}

// pluginComm is the plugin's name in /proc/PID/comm: the kernel keeps 15 bytes of a program's name (TASK_COMM_LEN in
// include/linux/sched.h).
const pluginComm = "kata-vfio-plugi"

// LockedError says that an operation on a function hangs in the kernel. It is usually an unbind, of the function or of
// its PF, that waits until a process closes the function. A reset would hang as well, and would block readers of the
// bridge above (pci_reset_function in drivers/pci/pci.c locks both).
type LockedError struct {
	Claim   plan.Ref
	Address pci.Address
	// Driver is the driver whose unbind hangs; empty if it is not known.
	Driver string
}

func (e *LockedError) Error() string {
	if device.WaitsForUsers(e.Driver) {
		return fmt.Sprintf("claim %s: unbinding %s from driver %s hangs in the kernel: %s", e.Claim, e.Address, e.Driver, device.NeverLetsGo)
	}
	return fmt.Sprintf("claim %s: an operation on %s hangs in the kernel: a reset can take a minute, so try again; if the operation still hangs, "+
		"stop the process that has the device open (delete its pod)",
		e.Claim, e.Address)
}

// Code returns the code that conditions and Events show.
func (e *LockedError) Code() rule.Code { return rule.Locked }

// IsUse reports whether an error says that a process has a function open, or that the use can't be determined.
func IsUse(err error) bool {
	_, used := errors.AsType[*InUseError](err)
	_, locked := errors.AsType[*LockedError](err)
	return used || locked
}

// Untaken returns the errors of [Set.Unheld] for functions that are about to leave their host drivers. It also asks the
// kernel whether one of their disks is in exclusive use, and whether their VFIO nodes are open.
func (set *Set) Untaken(ctx context.Context, snap *device.Snapshot, claim plan.Ref, addrs []pci.Address) error {
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		// A mounted file system holds its disk without an open file of any process, so the search for holders can't find it.
		disk, err := set.Holders.Claimed(ctx, f)
		if err != nil {
			return fmt.Errorf("claim %s: check whether disks of %s are in use: %w", claim, a, err)
		}
		if disk != "" {
			return plan.RefuseClaim(claim, rule.Verdict{
				Code: rule.DiskInUse, Device: f.Name(), Address: a, Driver: f.Driver,
				Text: fmt.Sprintf("disk %s of %s is in exclusive use (mounted in some namespace, or used by swap, RAID, ZFS or a process)", disk, a),
				Fix:  "unmount it or stop its user, or claim another device",
			})
		}
	}
	return set.unopened(ctx, snap, claim, addrs)
}

// unopened returns the errors of [Set.Unheld] for functions that no process is about to open. For functions on VFIO it
// also asks the kernel, which knows users that no process shows. If the kernel says that nobody uses any of the
// functions, it does not matter that some process can't be inspected.
func (set *Set) unopened(ctx context.Context, snap *device.Snapshot, claim plan.Ref, addrs []pci.Address) error {
	err := set.Unheld(ctx, snap, claim, addrs)
	_, unknown := errors.AsType[*vfio.UninspectableError](err)
	if err != nil && !unknown {
		return err
	}
	for _, a := range addrs {
		f, ok := snap.Function(a)
		// An exclusion means that this process itself has the group open, to keep all other processes out.
		if !ok || set.Executor.Excludes(a) {
			continue
		}
		switch node, askErr := set.Holders.Opened(ctx, f); {
		case node != "":
			return &InUseError{Claim: claim, Address: a, Open: node}
		case errors.Is(askErr, vfio.ErrCannotAsk):
			// Without the kernel's answer, a process that can't be inspected may be a holder.
			unknown = false
		case askErr != nil:
			return fmt.Errorf("claim %s: ask whether %s is in use: %w", claim, a, askErr)
		}
	}
	if unknown {
		return nil
	}
	return err
}

// retakeable refuses to take a function of a record from a host driver if the node needs the function, the node config
// does not select it, or a process uses it.
func (set *Set) retakeable(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	addrs := []pci.Address{fn.Address}
	snap, err := set.Inventory.Refresh(ctx, addrs)
	if err != nil {
		return err
	}
	f, ok := fn.In(snap)
	if !ok {
		return &GoneError{Address: fn.Address, Replaced: true}
	}
	if refusal := plan.Retakeable(snap, nodeconfig.Select(set.Node, snap), f, fn.Role); refusal != nil {
		return plan.RefuseClaim(rec.Plan.Claim, *refusal)
	}
	return set.Untaken(ctx, snap, rec.Plan.Claim, addrs)
}

// Unheld returns an [InUseError] if a process has a node of one of the functions open, through a host driver or through
// VFIO. It returns a [LockedError] if an operation on one of the functions hangs in the kernel and no holder is found.
func (set *Set) Unheld(ctx context.Context, snap *device.Snapshot, claim plan.Ref, addrs []pci.Address) error {
	var nodes []string
	var locked error
	owner := map[string]pci.Address{}
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		if f.Locked && locked == nil {
			locked = &LockedError{Claim: claim, Address: a, Driver: f.Detaching}
		}
		for _, n := range vfio.Nodes(f) {
			nodes = append(nodes, n)
			owner[n] = a
		}
	}
	if len(nodes) == 0 {
		return locked
	}
	holders, err := set.Holders.Find(ctx, nodes)
	switch {
	case len(holders) > 0:
		// Holders are reported before a hanging operation: an unbind that hangs waits for them, and they can be ended.
		return set.inUse(ctx, claim, owner[holders[0].Node], holders)
	case err != nil:
		return fmt.Errorf("claim %s: look for processes that use its devices: %w", claim, err)
	}
	return locked
}

// inUse returns the error for functions that processes hold. Its advice depends on whether a shim can end these
// processes. If that can't be determined, the error has the ordinary advice.
func (set *Set) inUse(ctx context.Context, claim plan.Ref, a pci.Address, holders []vfio.Holder) error {
	used := &InUseError{Claim: claim, Address: a, Holders: holders}
	if abandoned, err := set.Holders.Abandoned(ctx, holders); err == nil {
		used.Abandoned = abandoned
	}
	return used
}

// stillFree looks for users once more, right before a function is unbound from a driver whose unbind waits in the
// kernel for all users. Since the first check, a record was written and other functions were changed. If a user came
// meanwhile, the unbind may never end. stillFree can't see a user that comes after it.
func (set *Set) stillFree(ctx context.Context, claim plan.Ref, s plan.Step) error {
	if s.Operation != plan.Unbind || !device.WaitsForUsers(s.DriverBefore) {
		return nil
	}
	snap, err := set.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	return set.Unheld(ctx, snap, claim, []pci.Address{s.Address})
}

// Unused returns the errors of [Set.Unheld] for functions of a record. The record's sandbox may not have opened its
// functions yet, so the sandbox's shim and the shim's descendants count as holders too.
func (set *Set) Unused(ctx context.Context, snap *device.Snapshot, rec *journal.Record, addrs []pci.Address) error {
	// First look for processes that may still open the functions. If there are none, no further user can appear after
	// the look at open nodes.
	starting, err := set.starting(ctx, snap, rec)
	if err != nil {
		return err
	}
	if len(starting) == 0 {
		return set.unopened(ctx, snap, rec.Plan.Claim, addrs)
	}
	if err := set.Unheld(ctx, snap, rec.Plan.Claim, addrs); err != nil {
		return err
	}
	return set.inUse(ctx, rec.Plan.Claim, rec.Plan.Functions[0].Address, starting)
}

// WaitUnheld waits until no process has a function of the record open through VFIO, and no process of the record's
// sandbox can still open one. It returns an [InUseError] after the limit. Functions on host drivers may be open.
//
// If a wait reports that a holder ended, but all holders are still there, WaitUnheld gives up: their PIDs are of
// another PID namespace, so it can't wait for them. Holders that only the kernel knows are polled.
func (set *Set) WaitUnheld(ctx context.Context, snap *device.Snapshot, rec *journal.Record, limit time.Duration) error {
	// The limit applies only to waiting: even with a limit of 0 there is one complete look.
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	claim, addrs := rec.Plan.Claim, OnVFIO(snap, rec.Plan.AddressesIn(snap))
	var last []vfio.Holder
	for {
		err := set.Unused(ctx, snap, rec, addrs)
		var used *InUseError
		if !errors.As(err, &used) || wait.Err() != nil || used.Open == "" && slices.Equal(used.Holders, last) {
			return err
		}
		last = used.Holders
		waitErr := set.Observe.Timed(claim, PhaseWait, func() error { return set.wait(wait, used) })
		if waitErr != nil {
			return err
		}
	}
}

// askAgain is the pause between two questions to the kernel whether a process has a function open. No event announces
// the close.
const askAgain = 200 * time.Millisecond

// wait returns when a holder has ended, or when it is time to ask the kernel again.
func (set *Set) wait(ctx context.Context, used *InUseError) error {
	if used.Open == "" {
		return set.Holders.Wait(ctx, used.Holders)
	}
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// OnVFIO returns the functions that are on a VFIO driver, or that a hanging unbind may keep there: the kernel removes
// the driver's link first and then waits for the processes that have the function open.
func OnVFIO(snap *device.Snapshot, addrs []pci.Address) []pci.Address {
	return slices.DeleteFunc(addrs, func(a pci.Address) bool {
		f, ok := snap.Function(a)
		return !ok || !f.Locked && !f.OnVFIO()
	})
}

// startLimit is how long a shim without a child may take to start its VM. The kubelet and the runtimes give up on a
// sandbox earlier.
const startLimit = 5 * time.Minute

// starting returns the processes that may still open the record's functions for the record's sandbox.
//
// If the runtime has named the VM's process, the VM has opened its functions, and its open files show them. The shim
// does not count then, because it may outlive its VM until the sandbox is removed. While the VM's process ends, the
// kernel may still tear down files that the process has closed, so it counts until its last thread ends.
//
// If the runtime has not named the VM, the shim and its descendants count. A shim without a child counts for
// [startLimit] only: CRI-O ends the shim when it removes the sandbox, which the kubelet requests after Unprepare.
func (set *Set) starting(ctx context.Context, snap *device.Snapshot, rec *journal.Record) ([]vfio.Holder, error) {
	s := rec.Sandbox
	if s == nil || rec.BootID != snap.Host.BootID || len(rec.Plan.Functions) == 0 {
		return nil, nil
	}
	// PIDs are reused, so a process is always known by its PID and start time.
	if s.VMM != (journal.Process{}) {
		ending, err := set.Holders.Ending(ctx, s.VMM.PID, s.VMM.StartTime)
		if err != nil {
			err = fmt.Errorf("claim %s: check whether the VM of sandbox %s has ended: %w", rec.Plan.Claim, s.ID, err)
		}
		return ending, err
	}
	family, err := set.shims(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("claim %s: check whether sandbox %s, which has its devices, is still starting: %w", rec.Plan.Claim, s.ID, err)
	}
	alone := len(family) == 1 && (s.Shim == journal.Process{} || family[0].PID == s.Shim.PID)
	if alone && s.HasFor(startLimit, set.Ticks()) {
		return nil, nil
	}
	return family, nil
}

// shims returns the shim that requested a sandbox's functions, with its descendants. If the NRI plugin handed the
// functions over, the record has no shim, and the shim is found by the sandbox's ID.
func (set *Set) shims(ctx context.Context, s *journal.Sandbox) ([]vfio.Holder, error) {
	switch {
	case s.Shim != journal.Process{}:
		return set.Holders.Family(ctx, s.Shim.PID, s.Shim.StartTime)
	case s.ID != "":
		return set.Holders.Shims(ctx, s.ID)
	}
	return nil, nil
}
