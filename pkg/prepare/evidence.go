package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// The ledger has the node's history, and fails closed: what is not written there
// is not handed over, and what comes back without its event stays until the
// event is written too. The journal stays the state: after a crash between an
// effect and its event, the event is made up for from the journal and the
// kernel, and says so.

// EvidenceError says that what was done, or is to be done, could not be written
// to the ledger. A claim does not get its devices then, and does not lose them:
// the next try goes on from here.
type EvidenceError struct {
	// Claim is empty where it is not about one.
	Claim plan.Ref
	Err   error
}

func (e *EvidenceError) Error() string {
	if e.Claim.UID == "" {
		return "write the evidence of it: " + oneLine(e.Err)
	}
	return fmt.Sprintf("claim %s: write the evidence of it: %s", e.Claim, oneLine(e.Err))
}

func (e *EvidenceError) Unwrap() error { return e.Err }

// onlyEvidence reports whether nothing failed but the writing of events.
func onlyEvidence(err error) bool {
	if _, ok := err.(*EvidenceError); ok { //nolint:errorlint // each error of a join by itself
		return true
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return false
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !onlyEvidence(e) })
}

// record writes events of a claim. Every one without a result was well. It does not
// end with ctx: what was done is told, and the ledger has a limit of its own.
func (p *Preparer) record(ctx context.Context, claim plan.Ref, events ...ledger.Event) error {
	if p.Ledger == nil || len(events) == 0 {
		return nil
	}
	for i := range events {
		e := &events[i]
		e.Claim, e.Pods = claimOf(claim), podsOf(claim)
		if e.Result == "" {
			e.Result = ledger.OK
		}
	}
	err := p.timed(claim, PhaseLedger, func() error {
		_, err := p.Ledger.Append(context.WithoutCancel(ctx), events...)
		return err
	})
	if err != nil {
		return &EvidenceError{Claim: claim, Err: err}
	}
	return nil
}

func claimOf(c plan.Ref) *ledger.Claim {
	return &ledger.Claim{UID: c.UID, Namespace: c.Namespace, Name: c.Name}
}

func podsOf(c plan.Ref) []ledger.Pod {
	var pods []ledger.Pod
	for _, p := range c.Pods {
		pods = append(pods, ledger.Pod{UID: p.UID, Name: p.Name})
	}
	return pods
}

// devicesOf returns what a record takes, with the verdicts of the snapshot; it
// may be nil.
func devicesOf(snap *device.Snapshot, rec *journal.Record) []ledger.Device {
	list := make([]ledger.Device, len(rec.Plan.Functions))
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		d := &list[i]
		*d = ledger.Device{
			Address: fn.Address, Role: string(fn.Role), Vendor: fn.Vendor, Device: fn.Device,
			Group: new(fn.Group), PF: fn.PF,
		}
		if dev := deviceOf(&rec.Plan, fn.Address); dev != nil {
			d.Name, d.Pool, d.Backend, d.Attachment = dev.Name, dev.Pool, string(dev.Backend), string(dev.Attachment)
		}
		if snap != nil {
			describe(snap, d)
		}
	}
	return list
}

func deviceOf(pl *plan.Plan, a pci.Address) *plan.Device {
	for i := range pl.Devices {
		if pl.Devices[i].Address == a {
			return &pl.Devices[i]
		}
	}
	return nil
}

// describe adds what a snapshot knows of a device, and the verdict on one that a
// VM gets by its name.
func describe(snap *device.Snapshot, d *ledger.Device) {
	f, ok := snap.Function(d.Address)
	if !ok {
		return
	}
	d.SubVendor, d.SubDevice, d.Switch, d.Upstream = f.SubVendor, f.SubDevice, f.Switch, f.Upstream
	if g, ok := snap.GroupOf(f); ok {
		d.GroupMembers = g.Members
		d.Node = fmt.Sprintf("/dev/vfio/%d", g.Number)
	}
	if d.Backend == "IOMMUFD" && f.Children.VFIO != "" {
		d.Node = "/dev/vfio/devices/" + f.Children.VFIO
	}
	if d.Name != "" {
		v := isolation.Judge(snap, f)
		d.Isolation = &ledger.Isolation{Isolated: v.Isolated, Reasons: codesOf(v.Reasons), Notes: codesOf(v.Notes), Evidence: v.Evidence}
	}
}

func codesOf(reasons []isolation.Reason) []isolation.Code {
	var codes []isolation.Code
	for i := range reasons {
		if !slices.Contains(codes, reasons[i].Code) {
			codes = append(codes, reasons[i].Code)
		}
	}
	return codes
}

// briefly returns the record's devices by what names them.
func briefly(rec *journal.Record) []ledger.Device {
	return devicesNamed(&ledger.Event{Devices: devicesOf(nil, rec)})
}

func bindEvent(a pci.Address, before, after string) ledger.Event {
	return ledger.Event{Type: ledger.Bind, Devices: []ledger.Device{{Address: a, DriverBefore: new(before), DriverAfter: new(after)}}}
}

// resetEvent tells of one reset. Without an error the functions were found as
// before their tenant.
func resetEvent(proof *isolation.Proof, err error) ledger.Event {
	e := ledger.Event{Type: ledger.Reset, Reset: &ledger.ResetProof{
		Method: proof.Method, OK: err == nil, Milliseconds: proof.Milliseconds, Set: proof.Set,
		Before: proof.Before, After: proof.After, Match: err == nil,
	}}
	for _, a := range proof.Set {
		e.Devices = append(e.Devices, ledger.Device{Address: a})
	}
	if err != nil {
		e.Result, e.Reason = ledger.Failed, oneLine(err)
	}
	return e
}

func vmOf(s *journal.Sandbox) *ledger.VM {
	if s == nil {
		return nil
	}
	return &ledger.VM{Sandbox: s.ID, PID: s.VMM.PID, StartTime: s.VMM.StartTime, Since: s.Since}
}

func openEvent(snap *device.Snapshot, rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Open, Devices: devicesOf(snap, rec), VM: vmOf(rec.Sandbox)}
}

func closeEvent(rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Close, Devices: briefly(rec), VM: vmOf(rec.Sandbox)}
}

func quarantineEvent(rec *journal.Record) ledger.Event {
	return ledger.Event{Type: ledger.Quarantine, Devices: briefly(rec), VM: vmOf(rec.Sandbox), Reason: rec.Reason}
}

// policyEvent tells what PFs impose on the record's VFs; false where there is none.
func policyEvent(rec *journal.Record) (ledger.Event, bool) {
	e := ledger.Event{Type: ledger.Policy}
	for i := range rec.Plan.Functions {
		if fn := &rec.Plan.Functions[i]; fn.VF != nil {
			e.Devices = append(e.Devices, ledger.Device{Address: fn.Address, PF: fn.PF, Settings: new(fn.VF.Want)})
		}
	}
	return e, len(e.Devices) > 0
}

// end writes that a claim has ended, and then forgets its record.
func (p *Preparer) end(ctx context.Context, rec *journal.Record, code, why string) error {
	e := ledger.Event{Type: ledger.Unprepare, Devices: briefly(rec), VM: vmOf(rec.Sandbox), Reason: why}
	if code != "" {
		e.Codes = []string{code}
	}
	if err := p.record(ctx, rec.Plan.Claim, e); err != nil {
		return err
	}
	return p.forget(rec)
}

// recordRefused writes that a claim does not get its devices, once for each reason.
func (p *Preparer) recordRefused(ctx context.Context, claim plan.Ref, cause error) error {
	e := ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Reason: oneLine(cause)}
	refusal, isRefusal := errors.AsType[*plan.RefusedError](cause)
	_, inUse := errors.AsType[*InUseError](cause)
	_, locked := errors.AsType[*LockedError](cause)
	_, quarantined := errors.AsType[*QuarantinedError](cause)
	switch {
	case isRefusal:
		for i := range refusal.Refusals {
			r := &refusal.Refusals[i]
			e.Devices = append(e.Devices, ledger.Device{Address: r.Address, Name: r.Device})
			if !slices.Contains(e.Codes, string(r.Code)) {
				e.Codes = append(e.Codes, string(r.Code))
			}
		}
	case inUse:
		e.Codes = []string{"InUse"}
	case locked:
		e.Codes = []string{string(plan.Locked)}
	case quarantined:
		e.Codes = []string{string(plan.Quarantined)}
	default:
		return nil
	}
	return p.recordRefusal(ctx, claim, e)
}

// Refused writes to the ledger that somebody else refuses the claim its devices,
// before Prepare is asked: once for each reason, named by the code, as Prepare
// does with its own refusals.
func (p *Preparer) Refused(ctx context.Context, req *claim.Request, code string, cause error) error {
	e := ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Codes: []string{code}, Reason: oneLine(cause)}
	for _, d := range req.Devices {
		e.Devices = append(e.Devices, ledger.Device{Address: d.Address, Name: d.Name})
	}
	return p.recordRefusal(ctx, plan.RefOf(req), e)
}

// recordRefusal writes a refusal unless the claim's last was the same. Beyond the
// namespace's rate it is counted, and the next one that is written says how many.
func (p *Preparer) recordRefusal(ctx context.Context, claim plan.Ref, e ledger.Event) error {
	if p.refusals.repeats(claim.UID, e.Reason) {
		return nil
	}
	tell, untold := p.ration.Take(claim.Namespace)
	if !tell {
		return nil
	}
	if e.Untold = untold; untold > 0 {
		e.Reason += fmt.Sprintf(" (%d refusals of this namespace before it are not in the ledger: they were too many at once)", untold)
	}
	err := p.record(ctx, claim, e)
	if err != nil {
		p.refusals.forget(claim.UID)
		p.ration.Return(claim.Namespace, untold)
	}
	return err
}
