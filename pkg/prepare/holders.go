package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// onVFIO returns those of the functions that are on a VFIO driver, or that an
// unbind which hangs may still keep there: the kernel removes the driver's link
// first and then waits for who has the function open.
func onVFIO(snap *device.Snapshot, addrs []pci.Address) []pci.Address {
	return slices.DeleteFunc(addrs, func(a pci.Address) bool {
		f, ok := snap.Function(a)
		return !ok || !f.Locked && !device.IsVFIO(f.Driver)
	})
}

// untaken is unheld for functions that are about to leave their host drivers:
// it also asks the kernel whether somebody has one of their disks for himself.
func (p *Preparer) untaken(ctx context.Context, snap *device.Snapshot, claim plan.Ref, addrs []pci.Address) error {
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		disk, err := p.Holders.Claimed(ctx, f)
		if err != nil {
			return fmt.Errorf("claim %s: look whether disks of %s are in use: %w", claim, a, err)
		}
		if disk != "" {
			return &plan.RefusedError{Claim: claim, Refusals: []plan.Refusal{{
				Code: plan.DiskInUse, Device: f.Name(), Address: a, Driver: f.Driver,
				Text: fmt.Sprintf("disk %s of %s is in exclusive use (mounted in some namespace, swap, RAID, ZFS or opened by a process)", disk, a),
				Fix:  "unmount or stop what uses it, or claim another device",
			}}}
		}
	}
	return p.unheld(ctx, snap, claim, addrs)
}

// unheld returns an [InUseError] when a process has a node of one of the
// functions open, through a host driver or through VFIO, and a [LockedError] when
// an operation on one of them hangs and nobody is seen who holds it.
func (p *Preparer) unheld(ctx context.Context, snap *device.Snapshot, claim plan.Ref, addrs []pci.Address) error {
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
	holders, err := p.Holders.Find(ctx, nodes)
	if err != nil {
		return fmt.Errorf("claim %s: look for processes that use its devices: %w", claim, err)
	}
	if len(holders) == 0 {
		return locked
	}
	return p.inUse(ctx, claim, owner[holders[0].Node], holders)
}

// inUse returns the error for functions that processes hold. Whether a shim is left that
// ends them decides about the advice alone: without an answer the refusal stands.
func (p *Preparer) inUse(ctx context.Context, claim plan.Ref, a pci.Address, holders []vfio.Holder) error {
	used := &InUseError{Claim: claim, Address: a, Holders: holders}
	if abandoned, err := p.Holders.Abandoned(ctx, holders); err == nil {
		used.Abandoned = abandoned
	}
	return used
}

// unused is unheld for functions of a record, whose sandbox may have been given them and
// not have opened them yet: its shim and the processes of it count as holders.
func (p *Preparer) unused(ctx context.Context, snap *device.Snapshot, rec *journal.Record, addrs []pci.Address) error {
	// First who may still open them: once that is nobody, what is open now is all.
	starting, err := p.starting(ctx, snap, rec)
	if err != nil {
		return err
	}
	if err := p.unheld(ctx, snap, rec.Plan.Claim, addrs); err != nil || len(starting) == 0 {
		return err
	}
	return p.inUse(ctx, rec.Plan.Claim, rec.Plan.Functions[0].Address, starting)
}

// startLimit is how long a shim without a child may take until it starts its VM. The
// kubelet and the runtimes give a sandbox up after less.
const startLimit = 5 * time.Minute

// starting returns the processes that start a sandbox with the record's functions. Once
// the runtime has named the VM's process, the VM has opened what it was given, and its
// open files tell the rest: a shim may outlive its VM until the sandbox is removed. So a
// shim that has no child counts for [startLimit] only, where the runtime names no VM: CRI-O
// ends it when it removes the sandbox, and the kubelet has that done after Unprepare.
func (p *Preparer) starting(ctx context.Context, snap *device.Snapshot, rec *journal.Record) ([]vfio.Holder, error) {
	s := rec.Sandbox
	if s == nil || s.VMM != (journal.Process{}) || rec.BootID != snap.Host.BootID || len(rec.Plan.Functions) == 0 {
		return nil, nil
	}
	family, err := p.shims(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("claim %s: look whether sandbox %s, which has its devices, still starts: %w", rec.Plan.Claim, s.ID, err)
	}
	alone := len(family) == 1 && (s.Shim == journal.Process{} || family[0].PID == s.Shim.PID)
	if alone && !mayStart(s) {
		return nil, nil
	}
	return family, nil
}

// shims returns the shim that asked for a sandbox's functions, with its descendants. A
// record from before the shim was kept names the sandbox alone, and so does one of a
// sandbox that the NRI plugin handed over without a process.
func (p *Preparer) shims(ctx context.Context, s *journal.Sandbox) ([]vfio.Holder, error) {
	switch {
	case s.Shim != journal.Process{}:
		return p.Holders.Family(ctx, s.Shim.PID, s.Shim.StartTime)
	case s.ID != "":
		return p.Holders.Shims(ctx, s.ID)
	}
	return nil, nil
}

// mayStart reports whether a sandbox has its functions for so short a time that its shim
// may still be about to start the VM. One of unknown age may.
func mayStart(s *journal.Sandbox) bool {
	since, err := time.Parse(time.RFC3339, s.Since)
	return err != nil || time.Since(since) < startLimit
}

// holdings maps each function to the record that has it. Records of other
// boots hold nothing, but for a quarantine: that the machine was restarted
// (perhaps by kexec) is no proof that the device is clean.
func (p *Preparer) holdings(bootID string) (map[pci.Address]plan.Owner, string) {
	records, errs := p.Journal.List()
	return journal.Holdings(records, bootID), damaged(errs)
}

// damaged names the first record file that can't be read.
func damaged(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	if file, ok := errors.AsType[*journal.FileError](errs[0]); ok {
		return file.Path
	}
	return errs[0].Error()
}

// locks returns the locks of functions: their IOMMU groups, and their PFs,
// which a PF has to itself and its VFs share.
func locks(snap *device.Snapshot, addrs []pci.Address) []Lock {
	var locks []Lock
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		if f.Group != nil {
			locks = append(locks, Lock{Name: fmt.Sprintf("group-%d", *f.Group)})
		}
		switch {
		case f.VF != nil:
			locks = append(locks, Lock{Name: "pf-" + f.VF.PF.Label(), Shared: true})
		case f.PF != nil:
			locks = append(locks, Lock{Name: "pf-" + a.Label()})
		}
	}
	return locks
}

// lockRecord takes the locks of a record's functions, and returns a fresh
// snapshot of them. A reset that an earlier call was cut off from is waited for:
// while it is in the kernel, the functions can't be looked at.
func (p *Preparer) lockRecord(ctx context.Context, rec *journal.Record) (snap *device.Snapshot, release func(), err error) {
	claim, addrs := rec.Plan.Claim, rec.Plan.Addresses()
	err = p.timed(claim, PhaseWait, func() error { return p.Executor.AwaitResets(ctx, addrs) })
	if err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w; the next try goes on from here", claim, err)
	}
	if snap, err = p.Inventory.Snapshot(ctx); err != nil {
		return nil, nil, err
	}
	theirs := func(*device.Snapshot) []pci.Address { return slices.Clone(addrs) }
	return p.lockFresh(ctx, claim, snap, theirs, theirs)
}

// ClaimLocks begins the names of claims' locks, which are transient.
const ClaimLocks = "claim-"

func claimLock(uid string) Lock { return Lock{Name: ClaimLocks + uid, Transient: true} }
