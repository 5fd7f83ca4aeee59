package maintain

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// ErrNotQuarantined is the error for a claim without a quarantined device on this node.
var ErrNotQuarantined = errors.New("none of its devices is quarantined")

// Clearance is the way to end a quarantine.
type Clearance struct {
	// Reason and By are for the ledger.
	Reason string
	By     ledger.Operator
	// WithoutProof ends the quarantine without a proof: its functions return to their drivers with a mark. If the class
	// of the next claim requires resets, the marked functions are reset and proven clean first. A host driver gets a
	// function only after a reset that the kernel reports as successful, even if the function's registers have changed
	// since.
	WithoutProof bool
}

func (c *Clearance) event(rec *journal.Record) ledger.Event {
	e := ledger.Event{Type: ledger.Clear, Devices: effects.Briefly(rec), Reason: c.Reason, By: &c.By}
	if c.WithoutProof {
		e.Codes = []string{ledger.CodeUnproven}
	}
	return e
}

// Clear ends the quarantine of a claim's functions because an operator ordered it. The order is written to the ledger
// first. Unless the operator ordered to end the quarantine without a proof, the reset is tried again, and functions
// that it does not prove clean stay quarantined. Clear waits for locks within the limit for one record, and then for as
// long as the kernel needs for a reset.
//
// The quarantine stands until the functions are proven clean or marked, so Clear may be repeated after an error or a
// crash before that. After that, [prepare.Preparer.Unprepare] or [prepare.Preparer.Recover] continues.
//
// Errors a caller may branch on: [ErrNotQuarantined], [effects.InUseError], [prepare.QuarantinedError],
// [effects.EvidenceError].
func (m *Maintainer) Clear(ctx context.Context, uid string, how Clearance) ([]isolation.Proof, error) {
	wait, cancel := m.order.InTime(ctx) // for the lock only, because a reset may take longer
	defer cancel()
	release, err := m.order.Effects.LockClaim(wait, plan.Ref{UID: uid})
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := m.order.Effects.Journal.Load(uid)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != journal.Quarantined {
		return nil, fmt.Errorf("claim %s: %w", uid, ErrNotQuarantined)
	}
	work := rec.Clone()
	// The event comes before any effect. So after a crash, the ledger may have an operator's decision while the devices
	// are still in quarantine, but never the reverse.
	if err := m.order.Effects.Record(ctx, work.Plan.Claim, how.event(work)); err != nil {
		return nil, err
	}
	if how.WithoutProof {
		return nil, unfinished(work, m.waive(ctx, work, how))
	}
	err = m.takeOff(ctx, work)
	// takeOff changes work even if it fails, so the proofs of the functions that were reset are returned with the
	// error.
	return append([]isolation.Proof{}, work.Proofs...), unfinished(work, err)
}

// takeOff is [prepare.Order.TakeOff] with the limit for one record for the locks only.
func (m *Maintainer) takeOff(ctx context.Context, rec *journal.Record) error {
	wait, cancel := m.order.InTime(ctx)
	defer cancel()
	snap, release, err := m.order.LockToTakeOff(wait, rec)
	if err != nil {
		return err
	}
	defer release()
	return m.order.TakeOffLocked(ctx, snap, rec)
}

// unfinished adds to an error how an operator continues after the quarantine has ended.
func unfinished(rec *journal.Record, err error) error {
	if err == nil || rec.State != journal.Cleaned {
		return err
	}
	return fmt.Errorf("the quarantine has ended, but the devices are not returned: %w; `kata-vfio-plugin unprepare %s` continues from here", err, rec.ID())
}

// waive ends a quarantine without a proof. It writes the marks before the record ends, so that the functions do not
// count as clean if it is interrupted in between.
func (m *Maintainer) waive(ctx context.Context, rec *journal.Record, how Clearance) error {
	wait, cancel := m.order.InTime(ctx)
	defer cancel()
	snap, release, err := m.order.Effects.LockRecord(wait, rec)
	if err != nil {
		return err
	}
	defer release()
	if err := m.order.Effects.Backfill(ctx, snap, rec); err != nil {
		return err
	}
	// After a reboot, no process of the record's boot exists, and the functions are on the drivers that this boot gave
	// them. So there is no holder to wait for, and no function to reset for a host driver.
	earlier := rec.BootID != snap.Host.BootID
	if !earlier {
		if err := m.order.Effects.WaitUnheld(ctx, snap, rec, m.order.Config.HolderWait); err != nil {
			return err
		}
	}
	if err := m.order.Effects.RemoveSpec(ctx, rec); err != nil {
		return err
	}
	if !earlier {
		if err := m.makeFitForHost(ctx, snap, rec); err != nil {
			return err
		}
	}
	rec.Proofs = nil
	if err := m.order.Effects.Mark(ctx, rec, "an operator cleared the quarantine without a proven reset: "+how.Reason); err != nil {
		return err
	}
	e := how.event(rec)
	e.Type = ledger.Release
	if err := m.order.Effects.Record(ctx, rec.Plan.Claim, e); err != nil {
		return err
	}
	if err := m.order.Effects.Save(rec, journal.Cleaned, ""); err != nil {
		return err
	}
	if earlier {
		// The functions are on the drivers of this boot, and the node may use them. The bindings in the record (VFIO by
		// policy "bound", a VF's address) belong to another boot, and must not be restored.
		return m.order.Drop(ctx, rec)
	}
	return m.order.GiveBack(ctx, rec)
}

// makeFitForHost resets the functions of a quarantine before a host driver gets one of them, because their last tenant
// may have prepared a device to attack the driver. The record stays as it is.
func (m *Maintainer) makeFitForHost(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if m.order.Effects.AllGone(rec) {
		return nil
	}
	if !rec.Plan.ReturnsToHost() {
		return m.order.Effects.Deactivate(ctx, rec)
	}
	if err := m.order.Effects.Untaken(ctx, snap, rec.Plan.Claim, rec.Plan.AddressesIn(snap)); err != nil {
		return err // somebody moved a function to its host driver and uses it there
	}
	own := rec.Clone()
	own.Baseline = nil // no proof is required: the functions are compared with their present state
	if err := m.order.CarryOut(ctx, own, plan.ForHost()); err != nil {
		return fmt.Errorf("claim %s: its devices stay in quarantine, because a host driver must not get a device that was not reset after a tenant: %w; "+
			"if resets keep failing, power-cycle the node, then clear the quarantine", rec.Plan.Claim, err)
	}
	return nil
}
