package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Release is the end of a claim.
type Release struct {
	// Known is false for a claim without a record, which had nothing on this node.
	Known bool
	// Proofs has one proof for each reset. It is empty if no reset was due.
	Proofs []isolation.Proof
}

// Unprepare ends a claim on this node: it waits for holders, resets the functions, compares them with their baseline,
// and returns them to their drivers. It may be repeated, and a claim without a record is not an error.
//
// While a process has a function open, Unprepare changes nothing and returns an [effects.InUseError], or an
// [effects.LockedError] if another unbind waits in the kernel for that process. If a function can't be proven clean, it
// returns a [QuarantinedError]: the tenant has lost the function, and no other tenant gets it. Unprepare of a
// quarantined claim tries the reset again.
//
// If addresses can't be returned to their pool, Unprepare returns an [effects.ReturnError], and the record stays for
// the next try. If the program that takes back an activation is away, it returns a [bind.AwayError], and the record
// stays too. After ten minutes without that program, the functions are quarantined.
func (p *Preparer) Unprepare(ctx context.Context, uid string) (Release, error) {
	return p.UnprepareIf(ctx, uid, nil)
}

// UnprepareIf calls check, and does what [Preparer.Unprepare] does if check returns nil. Otherwise it returns check's
// error. check runs with the claim's lock held, so that no Prepare comes in between. It may be nil, and is not called
// for a claim without a record.
func (p *Preparer) UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) (Release, error) {
	return p.unprepare(ctx, uid, check, (*journal.Record).Clone)
}

// UnprepareLeavingAddresses is [Preparer.Unprepare], but does not ask the plugins of the claim's address pools, which
// may no longer exist. The addresses stay allocated until an operator frees them in the pool. If it returns an
// [effects.InUseError], the claim still has its leases.
func (p *Preparer) UnprepareLeavingAddresses(ctx context.Context, uid string) (Release, error) {
	return p.unprepare(ctx, uid, nil, (*journal.Record).WithoutLeases)
}

// unprepare ends a claim by work on its own copy of the record, which own makes. check may be nil.
func (p *Preparer) unprepare(
	ctx context.Context, uid string, check func(context.Context, *journal.Record) error, own func(*journal.Record) *journal.Record,
) (ended Release, err error) {
	ctx, end := p.order.Config.begun(ctx, Call{Kind: CallUnprepare, Claim: plan.Ref{UID: uid}})
	defer func() { end(Result{Proofs: ended.Proofs, Err: err}) }()
	release, err := p.order.Effects.LockClaim(ctx, plan.Ref{UID: uid})
	if err != nil {
		return Release{}, err
	}
	defer release()
	rec, err := p.order.Effects.Journal.Load(uid)
	if err != nil {
		return Release{}, err
	}
	if rec == nil {
		// If a spec had no record, a runtime could pass on devices that nothing tracks.
		return Release{}, p.order.Effects.Specs.Remove(uid)
	}
	if check != nil {
		if err := check(ctx, rec); err != nil {
			return Release{}, err
		}
	}
	work := own(rec)
	err = p.order.TakeOff(ctx, work)
	if err == nil {
		p.refusals.forget(uid)
	}
	return Release{Known: true, Proofs: work.Proofs}, err
}

// TakeOff ends a record in any state. If it succeeds, the functions are on their original bindings, and the spec and
// the record are removed. The caller holds the claim's lock.
func (o *Order) TakeOff(ctx context.Context, rec *journal.Record) error {
	snap, release, err := o.LockToTakeOff(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	return o.TakeOffLocked(ctx, snap, rec)
}

// LockToTakeOff takes the locks of a record's functions for [Order.TakeOffLocked]. For a quarantine of an earlier boot,
// it first changes the addresses in rec to those that the functions have now.
func (o *Order) LockToTakeOff(ctx context.Context, rec *journal.Record) (snap *device.Snapshot, release func(), err error) {
	if err := o.follow(ctx, rec); err != nil {
		return nil, nil, err
	}
	return o.Effects.LockRecord(ctx, rec)
}

// follow changes the addresses in a quarantine of an earlier boot to the addresses of this boot, so that the right
// locks are taken.
func (o *Order) follow(ctx context.Context, rec *journal.Record) error {
	snap, err := o.Effects.Inventory.Snapshot(ctx)
	if err != nil || rec.State != journal.Quarantined || rec.BootID == snap.Host.BootID {
		return err
	}
	rec.Plan = rec.Plan.Follow(snap)
	return nil
}

// TakeOffLocked is [Order.TakeOff] with the locks of [Order.LockToTakeOff] held.
func (o *Order) TakeOffLocked(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	o.Effects.MakeRoom()
	if err := o.noteStages(ctx, snap, rec); err != nil {
		return err
	}
	earlier := rec.BootID != snap.Host.BootID
	// The events of a record in state Prepared are complete: they are on disk before it gets that state
	// (effects.Set.Complete), and Recover completes them after an interrupted hand-over.
	if earlier || rec.State != journal.Prepared {
		if err := o.Effects.Backfill(ctx, snap, rec); err != nil {
			return err
		}
	}
	if earlier && rec.State != journal.Quarantined {
		return o.Drop(ctx, rec)
	}
	lent, err := o.isLent(snap, rec)
	if err != nil {
		return err
	}
	if lent {
		return fmt.Errorf("claim %s: a claim has the device, which returns to its driver only after that: unprepare the claim first; "+
			"`kata-vfio-plugin status` lists it", rec.Plan.Claim)
	}
	if err := o.Effects.WaitUnheld(ctx, snap, rec, o.Config.HolderWait); err != nil {
		return err
	}
	switch rec.State {
	case journal.Preparing:
		return o.Undo(ctx, rec, nil)
	case journal.Cleaned:
		if err := o.proveAgain(ctx, snap, rec); err != nil {
			return err
		}
		return o.GiveBack(ctx, rec)
	case journal.Quarantined:
		return o.retest(ctx, snap, rec)
	default:
		return o.releaseMoved(ctx, snap, rec)
	}
}

// noteStages marks the functions of a tenant's claim whose rule asks for a sanitizing stage now, but did not when the
// claim was prepared.
func (o *Order) noteStages(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if rec.Kind != journal.Claim || rec.Plan.IsStage() || rec.State == journal.Preparing {
		return nil
	}
	selection := nodeconfig.Select(o.Config.Node, snap)
	if !selection.Sanitizes() {
		return nil
	}
	rec.Plan.Functions = slices.Clone(rec.Plan.Functions)
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		f := snap.Find(fn.Identity).Function
		if f == nil {
			continue
		}
		if s := selection.Choice(f.Address).Sanitize; s != nil {
			fn.Sanitize = s.Profile
		}
	}
	return o.Effects.NoteTenancy(ctx, rec)
}

// retest tries the reset of a quarantine again. After a reboot, the functions of the quarantine are on their host
// drivers, and must be bound to VFIO for the reset. Functions that are gone need no reset. If another function is at
// such an address, it is not touched, and it proves nothing.
func (o *Order) retest(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if err := o.Effects.Untaken(ctx, snap, rec.Plan.Claim, rec.Plan.AddressesIn(snap)); err != nil {
		return err
	}
	if rec.BootID != snap.Host.BootID {
		// Firmware may have placed the BARs of the functions elsewhere, so the old baseline does not apply.
		rec.BootID, rec.Baseline = snap.Host.BootID, nil
		if err := o.Effects.Rebase(ctx, rec); err != nil {
			return err
		}
	}
	if err := o.Effects.Save(rec, journal.Quarantined, rec.Reason); err != nil {
		return err
	}
	if err := o.CarryOut(ctx, rec, plan.Retest()); err != nil {
		return err
	}
	return o.release(ctx, rec)
}

// Drop removes the spec and the record of a claim of an earlier boot. Only addresses have to be returned, because they
// outlive a boot: this boot began with the kernel's own bindings. Drop marks the functions that a VM may have had,
// because a restart of the machine (perhaps by kexec) does not prove that they are clean.
func (o *Order) Drop(ctx context.Context, rec *journal.Record) error {
	code, why := ledger.CodeUndone, "the node stopped"
	switch rec.State {
	case journal.Prepared, journal.Releasing:
		code, why = ledger.CodeUnproven, "the node stopped before a reset"
		rec.Proofs = nil
		if err := o.Effects.Mark(ctx, rec, why); err != nil {
			return err
		}
	case journal.Preparing: // or Prepared, but that state did not reach the disk; see [effects.Set.Complete]
		rec.Proofs = nil
		if err := o.Effects.Mark(ctx, rec, "the node stopped while the claim was being prepared"); err != nil {
			return err
		}
	case journal.Cleaned, journal.Quarantined:
	}
	if err := o.CarryOut(ctx, rec, plan.AfterReboot()); err != nil {
		return err
	}
	if rec.State == journal.Prepared && rec.Sandbox != nil {
		e := effects.CloseEvent(rec)
		// The event is late, because the VM ended with its node at a time that nobody recorded.
		e.Late, e.Reason = true, why
		if err := o.Effects.Record(ctx, rec.Plan.Claim, e); err != nil {
			return err
		}
	}
	if rec.State == journal.Cleaned {
		code = endCode(rec)
	}
	return o.Effects.End(ctx, rec, code, why)
}

// releaseMoved releases a record whose functions somebody may have bound to host drivers. It brings such functions back
// to VFIO first. If that fails and no reset is due, it goes on: release restores a function from the driver that it is
// on.
func (o *Order) releaseMoved(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	moved, err := o.moved(ctx, snap, rec)
	if err != nil {
		return err
	}
	if err := o.bringBack(ctx, moved); err != nil && len(rec.Plan.Resets()) > 0 {
		return err
	}
	return o.release(ctx, rec)
}

// release resets and returns the functions of a claim that was prepared. A quarantine stays one until its functions are
// proven clean, because nobody continues an interrupted release of it but the operator, who repeats the command.
func (o *Order) release(ctx context.Context, rec *journal.Record) error {
	quarantined := rec.State == journal.Quarantined
	if !quarantined {
		if err := o.beginRelease(ctx, rec); err != nil {
			return err
		}
	}
	err := o.CarryOut(ctx, rec, plan.Cleaning())
	if quarantined && isAway(err) {
		return o.quarantine(ctx, rec, err) // the claim has ended, so its pod must not wait for the program
	}
	if err != nil {
		return err
	}
	// The marks are written before the state Cleaned, which says that each function is proven clean or marked.
	if err := o.Effects.Mark(ctx, rec, "no reset: the DeviceClass waives it, or the device was off the bus"); err != nil {
		return err
	}
	if quarantined {
		if err := o.Effects.Record(ctx, rec.Plan.Claim, ledger.Event{Type: ledger.Release, Devices: effects.Briefly(rec)}); err != nil {
			return err
		}
	}
	if err := o.Effects.Advance(rec, journal.Cleaned); err != nil {
		return err
	}
	return o.GiveBack(ctx, rec)
}

// beginRelease writes that the VM no longer has the functions, and then changes the state. After a crash in between, the
// record is still Prepared and names its sandbox, so the next call repeats both.
func (o *Order) beginRelease(ctx context.Context, rec *journal.Record) error {
	if rec.State == journal.Prepared && rec.Sandbox != nil {
		if err := o.Effects.Record(ctx, rec.Plan.Claim, effects.CloseEvent(rec)); err != nil {
			return err
		}
	}
	return o.Effects.Advance(rec, journal.Releasing)
}

// GiveBack brings clean functions back to their original bindings, returns the addresses, which no VM uses any more,
// and removes the record. If a shared device does not answer afterwards, it is quarantined.
func (o *Order) GiveBack(ctx context.Context, rec *journal.Record) error {
	if err := o.CarryOut(ctx, rec, plan.GivingBack()); err != nil {
		// This does not lead to a quarantine: the functions are clean, and only bindings or addresses are not restored.
		return errors.Join(err, o.Effects.Save(rec, journal.Cleaned, effects.OneLine(err)))
	}
	if err := o.Effects.CheckAnswer(rec); err != nil {
		rec.Proofs = nil
		return o.quarantine(ctx, rec, err)
	}
	return o.Effects.End(ctx, rec, endCode(rec), "")
}

// endCode returns the code of a claim's end: empty if all functions that its VM could reach are proven clean.
func endCode(rec *journal.Record) string {
	if slices.ContainsFunc(rec.Plan.Reachable(), func(a pci.Address) bool { return !effects.IsProven(rec, a) }) {
		return ledger.CodeUnproven
	}
	return ""
}

// quarantine keeps a record's functions from reuse because of cause, such as a failed reset. It removes the spec before
// the record enters the state, so that nothing can pass the functions to a VM any more.
func (o *Order) quarantine(ctx context.Context, rec *journal.Record, cause error) error {
	if err := o.Effects.RemoveSpec(ctx, rec); err != nil {
		return errors.Join(cause, err)
	}
	// After a boot, the device of the quarantine may be indistinguishable from others of its kind. The marks then keep
	// all of these from tenants until they are reset.
	if err := o.Effects.Mark(ctx, rec, "its reset was not proven"); err != nil {
		return errors.Join(cause, err)
	}
	if err := o.Effects.Save(rec, journal.Quarantined, effects.OneLine(cause)); err != nil {
		return errors.Join(cause, err)
	}
	if err := o.Effects.Record(ctx, rec.Plan.Claim, effects.QuarantineEvent(rec)); err != nil {
		cause = errors.Join(cause, err) // Backfill writes the event at the next look at the quarantine
	}
	return &QuarantinedError{Record: rec, Err: cause}
}

// QuarantinedError says that a claim's functions could not be proven clean and are kept from reuse. If Unprepare
// returns it, the tenant has lost the functions, and the claim's record stays and keeps the quarantine.
type QuarantinedError struct {
	Record *journal.Record
	Err    error // the cause of the quarantine; nil if the record was already quarantined
}

func (e *QuarantinedError) Error() string {
	addrs := e.Record.Plan.Addresses()
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	return fmt.Sprintf("claim %s: %s quarantined: %s; check the device, then run `kata-vfio-plugin unprepare %s` to try the reset again",
		e.Record.Plan.Claim, strings.Join(words, ", "), e.Record.Reason, e.Record.ID())
}

// Code returns the code that conditions and Events show.
func (e *QuarantinedError) Code() rule.Code { return rule.Quarantined }

func (e *QuarantinedError) Unwrap() error { return e.Err }
