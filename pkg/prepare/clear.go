package prepare

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// ErrNotQuarantined says that a claim has nothing in quarantine here.
var ErrNotQuarantined = errors.New("nothing of it is quarantined")

// Clearance is how a quarantine is to end.
type Clearance struct {
	// Reason and By are for the ledger.
	Reason string
	By     ledger.Operator
	// WithoutProof ends it though nothing is proven: its functions go back to their
	// drivers, marked, so that the next claim whose class asks for resets has them
	// reset and proven first. A host driver gets them after a reset that the kernel says
	// has worked, whatever they look like since.
	WithoutProof bool
}

// Clear ends the quarantine of a claim's functions because an operator says so, which
// the ledger has first. Unless it is to end without a proof, the reset is tried again,
// and what it does not prove clean stays quarantined.
//
// Errors a caller may branch on: [ErrNotQuarantined], [InUseError],
// [QuarantinedError], [EvidenceError].
func (p *Preparer) Clear(ctx context.Context, uid string, how Clearance) ([]isolation.Proof, error) {
	release, err := p.lock(ctx, plan.Ref{UID: uid}, []Lock{claimLock(uid)})
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := p.Journal.Load(uid)
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.State != journal.Quarantined {
		return nil, fmt.Errorf("claim %s: %w", uid, ErrNotQuarantined)
	}
	work := *rec
	if err := p.record(ctx, work.Plan.Claim, how.event(&work)); err != nil {
		return nil, err
	}
	if how.WithoutProof {
		return nil, p.waive(ctx, &work, how)
	}
	err = p.takeOff(ctx, &work)
	return append([]isolation.Proof{}, work.Proofs...), err
}

func (c *Clearance) event(rec *journal.Record) ledger.Event {
	e := ledger.Event{Type: ledger.Clear, Devices: briefly(rec), Reason: c.Reason, By: &c.By}
	if c.WithoutProof {
		e.Codes = []string{ledger.CodeUnproven}
	}
	return e
}

// waive ends a quarantine without a proof. The marks come first: wherever it is cut
// off, nobody takes the functions for clean.
func (p *Preparer) waive(ctx context.Context, rec *journal.Record, how Clearance) error {
	snap, release, err := p.lockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	if err := p.backfill(ctx, snap, rec); err != nil {
		return err
	}
	earlier := rec.BootID != snap.Host.BootID
	if !earlier {
		if err := p.waitUnheld(ctx, snap, rec, p.HolderWait); err != nil {
			return err
		}
	}
	if err := p.removeSpec(ctx, rec); err != nil {
		return err
	}
	if !earlier {
		if err := p.makeFitForHost(ctx, rec); err != nil {
			return err
		}
	}
	rec.Proofs = nil
	if err := p.mark(rec, "its quarantine was cleared without a proof: "+how.Reason); err != nil {
		return err
	}
	e := how.event(rec)
	e.Type = ledger.Release
	if err := p.record(ctx, rec.Plan.Claim, e); err != nil {
		return err
	}
	if err := p.save(rec, journal.Cleaned, ""); err != nil {
		return err
	}
	if earlier {
		// The node may be using the functions: they are where its start has put them, and
		// what the record restores (VFIO by policy "bound", a VF's address) is of another boot.
		return p.drop(ctx, rec)
	}
	return p.giveBack(ctx, rec)
}

// makeFitForHost resets the functions of a quarantine before a host driver gets one of
// them: their last tenant may have armed a device against the driver. The record stays as
// it is.
func (p *Preparer) makeFitForHost(ctx context.Context, rec *journal.Record) error {
	if !rec.Plan.ReturnsToHost() || p.allGone(rec) {
		return nil
	}
	own := *rec
	own.Baseline = nil // no proof is asked for: the functions are compared with what they are now
	if err := p.carryOut(ctx, &own, plan.ForHost()); err != nil {
		return fmt.Errorf("claim %s: its devices stay in quarantine, since a host driver must not get what was not reset after a tenant: %w; "+
			"if resets keep failing, power-cycle the node and clear the quarantine then", rec.Plan.Claim, err)
	}
	return nil
}

// resetForHost makes the resets. One that fails leaves the quarantine as it is.
func (p *Preparer) resetForHost(ctx context.Context, rec *journal.Record) error {
	return p.resetAll(ctx, rec, rec.Plan.Resets())
}
