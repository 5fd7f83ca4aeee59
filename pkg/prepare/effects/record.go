package effects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// The ledger has the node's history, and fails closed: a function goes to a sandbox only after the event of that is
// written, and its record stays until the event of its return is written. The journal has the state. If a crash comes
// between an effect and its event, the event is derived from the journal and the kernel, and marked as late.

// EvidenceError says that the event of a completed or planned step could not be written to the ledger. Then the claim
// neither gets nor loses its devices, and the next try continues.
type EvidenceError struct {
	// Claim is empty if the error concerns no claim.
	Claim plan.Ref
	Err   error
}

func (e *EvidenceError) Error() string {
	if e.Claim.UID == "" {
		return "write its event to the ledger: " + OneLine(e.Err)
	}
	return fmt.Sprintf("claim %s: write its event to the ledger: %s", e.Claim, OneLine(e.Err))
}

// Code returns the code that conditions and Events show.
func (e *EvidenceError) Code() rule.Code { return rule.NoEvidence }

func (e *EvidenceError) Unwrap() error { return e.Err }

// HasRoom returns an error if the disk has no space for a new claim.
func (set *Set) HasRoom() error {
	if set.Room == nil {
		return nil
	}
	return set.Room.Fill()
}

// CanRecord returns an [EvidenceError] if no event can be written now.
func (set *Set) CanRecord(ctx context.Context) error {
	if set.Ledger == nil {
		return nil
	}
	if err := set.Ledger.Ready(ctx); err != nil {
		return &EvidenceError{Err: err}
	}
	return nil
}

// MakeRoom frees reserved space if the disk is nearly full, so that a claim can end. Its errors are ignored: if there
// is still no space, the writes that follow fail and say why.
func (set *Set) MakeRoom() {
	if set.Room != nil {
		_ = set.Room.Spend()
	}
}

// Save writes the record in the given state. If the record is in that state already, its Since does not change.
func (set *Set) Save(rec *journal.Record, state journal.State, reason string) error {
	return set.enter(rec, state, reason, set.Journal.Save)
}

// Advance is Save without the wait for the disk: a power failure may take the record back to its former state. That is
// safe, because in the next boot both states mean that a tenant may have had the functions and that no proof covers
// them.
func (set *Set) Advance(rec *journal.Record, state journal.State) error {
	return set.enter(rec, state, "", set.Journal.Replace)
}

// Complete writes the record of a claim that is now prepared, after all events of the claim are on disk. It does not
// wait until the record is on disk: the functions go to a VM later, after [Set.Keep] has written the record with the
// sandbox durably.
//
// So Prepare waits for the disk four times: for the intent, its entry, the events, and this record's content. Three are
// not enough (TestEachWaitForTheDiskIsNeeded). The intent must be there after a power failure, since a runtime may pass a device on
// as soon as there is a CDI spec. A checkpoint leaves the node right after Prepare, so that its events can't wait for the
// hand-over's. And this record takes the intent's place by a rename, which doesn't wait for the content.
func (set *Set) Complete(ctx context.Context, rec *journal.Record) error {
	if err := set.Settle(ctx, rec.Plan.Claim); err != nil {
		return err
	}
	return set.Advance(rec, journal.Prepared)
}

// enter sets the record's state, and calls write to save the record.
func (set *Set) enter(rec *journal.Record, state journal.State, reason string, write func(*journal.Record) error) error {
	next := *rec
	next.State, next.Reason = state, reason
	if rec.State != state || rec.Since == "" {
		next.Since = time.Now().UTC().Format(time.RFC3339)
	}
	err := set.Observe.Timed(rec.Plan.Claim, PhaseJournal, func() error { return write(&next) })
	// The caller's record changes only together with the disk. If the write fails, the record still says what a restart
	// would find.
	if err == nil {
		*rec = next
	}
	return err
}

// Keep writes a record whose state does not change.
func (set *Set) Keep(rec *journal.Record) error {
	return set.Observe.Timed(rec.Plan.Claim, PhaseJournal, func() error { return set.Journal.Save(rec) })
}

// Forget removes the record.
func (set *Set) Forget(rec *journal.Record) error {
	return set.Observe.Timed(rec.Plan.Claim, PhaseJournal, func() error { return set.Journal.Delete(rec.ID()) })
}

// Record writes events of a claim. An event without a result was successful. Record ignores ctx's cancellation:
// completed steps must be recorded, and the ledger has its own limit.
func (set *Set) Record(ctx context.Context, claim plan.Ref, events ...ledger.Event) error {
	return set.writeEvents(ctx, claim, events, func(ctx context.Context) error {
		_, err := set.Ledger.Append(ctx, events...)
		return err
	})
}

// RecordSoon is Record without the wait for the disk. Use it if another event of the claim, [Set.Settle] or
// [Set.Complete] follows.
func (set *Set) RecordSoon(ctx context.Context, claim plan.Ref, events ...ledger.Event) error {
	return set.writeEvents(ctx, claim, events, func(ctx context.Context) error { return set.Ledger.AppendSoon(ctx, events...) })
}

// writeEvents completes events of a claim and writes them.
func (set *Set) writeEvents(ctx context.Context, claim plan.Ref, events []ledger.Event, to func(context.Context) error) error {
	if set.Ledger == nil || len(events) == 0 {
		return nil
	}
	for i := range events {
		e := &events[i]
		e.Claim, e.Pods = ledgerClaim(claim), ledgerPods(claim)
		if e.Result == "" {
			e.Result = ledger.OK
		}
	}
	return set.evident(ctx, claim, to)
}

// Settle waits until all events of a claim are on disk.
func (set *Set) Settle(ctx context.Context, claim plan.Ref) error {
	if set.Ledger == nil {
		return nil
	}
	return set.evident(ctx, claim, set.Ledger.Sync)
}

// evident runs work on the ledger. The cancellation of ctx does not interrupt it.
func (set *Set) evident(ctx context.Context, claim plan.Ref, work func(context.Context) error) error {
	err := set.Observe.Timed(claim, PhaseLedger, func() error { return work(context.WithoutCancel(ctx)) })
	if err != nil {
		return &EvidenceError{Claim: claim, Err: err}
	}
	return nil
}

// End writes that a claim has ended, and then forgets its record.
func (set *Set) End(ctx context.Context, rec *journal.Record, code, why string) error {
	e := ledger.Event{Type: ledger.Unprepare, Devices: Briefly(rec), VM: ledgerVM(rec.Sandbox), Reason: why}
	if code != "" {
		e.Codes = []string{code}
	}
	if err := set.Record(ctx, rec.Plan.Claim, e); err != nil {
		return err
	}
	return set.Forget(rec)
}

// OneLine returns an error's text without line breaks, which separate joined errors.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func ledgerClaim(c plan.Ref) *ledger.Claim {
	return &ledger.Claim{UID: c.UID, Namespace: c.Namespace, Name: c.Name, Tenant: c.Tenant}
}

func ledgerPods(c plan.Ref) []ledger.Pod {
	var pods []ledger.Pod
	for _, p := range c.Pods {
		pods = append(pods, ledger.Pod{UID: p.UID, Name: p.Name})
	}
	return pods
}

// LedgerDevices returns the record's functions, with the verdicts of the snapshot, which may be nil.
func LedgerDevices(snap *device.Snapshot, rec *journal.Record) []ledger.Device {
	list := make([]ledger.Device, len(rec.Plan.Functions))
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		d := &list[i]
		*d = ledger.Device{
			Address: fn.Address, Role: string(fn.Role), Vendor: fn.Vendor, Device: fn.Device,
			Group: new(fn.Group), PF: fn.PF, FirstFunction: fn.FirstFunction,
		}
		if dev := findDevice(&rec.Plan, fn.Address); dev != nil {
			d.Name, d.Pool, d.Backend, d.Attachment = dev.Name, dev.Pool, string(dev.Backend), string(dev.Attachment)
		}
		if snap != nil {
			describe(snap, d)
		}
	}
	return list
}

func findDevice(pl *plan.Plan, a pci.Address) *plan.Device {
	for i := range pl.Devices {
		if pl.Devices[i].Address == a {
			return &pl.Devices[i]
		}
	}
	return nil
}

// describe adds the snapshot's facts about a device, and the isolation verdict if the device has a name.
func describe(snap *device.Snapshot, d *ledger.Device) {
	f, ok := snap.Function(d.Address)
	if !ok {
		return
	}
	d.SubVendor, d.SubDevice, d.Switch, d.Upstream = f.SubVendor, f.SubDevice, f.Switch, f.Upstream
	if g, ok := snap.GroupWith(f); ok {
		d.GroupMembers = g.Members
		d.Node = fmt.Sprintf("/dev/vfio/%d", g.Number)
	}
	if d.Backend == "IOMMUFD" && f.Children.VFIO != "" {
		// With iommufd, the VMM opens the function's own character device and not its group's.
		d.Node = "/dev/vfio/devices/" + f.Children.VFIO
	}
	if d.Name != "" {
		v := isolation.Judge(snap, f)
		d.Isolation = &ledger.Isolation{Isolated: v.Isolated, Reasons: listCodes(v.Reasons), Notes: listCodes(v.Notes), Evidence: v.Evidence.List()}
	}
}

func listCodes(reasons []rule.Verdict) []rule.Code {
	var codes []rule.Code
	for i := range reasons {
		if !slices.Contains(codes, reasons[i].Code) {
			codes = append(codes, reasons[i].Code)
		}
	}
	return codes
}

// Briefly returns the record's devices with only the facts that identify them.
func Briefly(rec *journal.Record) []ledger.Device {
	return DevicesNamed(&ledger.Event{Devices: LedgerDevices(nil, rec)})
}

// DevicesNamed returns an event's devices with their names only.
func DevicesNamed(e *ledger.Event) []ledger.Device {
	list := make([]ledger.Device, len(e.Devices))
	for i := range e.Devices {
		d := &e.Devices[i]
		list[i] = ledger.Device{Address: d.Address, Name: d.Name, Role: d.Role, Group: d.Group}
	}
	return list
}

func bindEvent(a pci.Address, before, after string) ledger.Event {
	return ledger.Event{Type: ledger.Bind, Devices: []ledger.Device{{Address: a, DriverBefore: new(before), DriverAfter: new(after)}}}
}

// resetEvent describes one reset. No error means that the functions' registers are as before their tenant.
func resetEvent(proof *isolation.Proof, err error) ledger.Event {
	e := ledger.Event{Type: ledger.Reset, Reset: &ledger.ResetProof{
		Method: proof.Method, OK: err == nil, Milliseconds: proof.Milliseconds, Set: proof.Set,
		Before: proof.Before, After: proof.After, Match: err == nil, Memory: ledger.MemoryNotChecked,
	}}
	for _, a := range proof.Set {
		e.Devices = append(e.Devices, ledger.Device{Address: a})
	}
	if err != nil {
		e.Result, e.Reason = ledger.Failed, OneLine(err)
	}
	return e
}

func ledgerVM(s *journal.Sandbox) *ledger.VM {
	if s == nil {
		return nil
	}
	return &ledger.VM{Sandbox: s.ID, PID: s.VMM.PID, StartTime: s.VMM.StartTime, Since: s.Since}
}

// OpenEvent says that the record's functions go to its sandbox.
func OpenEvent(snap *device.Snapshot, rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Open, Devices: LedgerDevices(snap, rec), VM: ledgerVM(rec.Sandbox)}
}

// CloseEvent says that the record's sandbox no longer has its functions.
func CloseEvent(rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Close, Devices: Briefly(rec), VM: ledgerVM(rec.Sandbox)}
}

// QuarantineEvent says that the record's functions are kept from reuse.
func QuarantineEvent(rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Quarantine, Devices: Briefly(rec), VM: ledgerVM(rec.Sandbox), Reason: rec.Reason}
}

// policyEvent describes the settings that PFs apply to the record's VFs; false if it has none.
func policyEvent(rec *journal.Record) (ledger.Event, bool) {
	e := ledger.Event{Type: ledger.Policy}
	for i := range rec.Plan.Functions {
		if fn := &rec.Plan.Functions[i]; fn.VF != nil {
			e.Devices = append(e.Devices, ledger.Device{Address: fn.Address, PF: fn.PF, Settings: new(fn.VF.Want)})
		}
	}
	return e, len(e.Devices) > 0
}
