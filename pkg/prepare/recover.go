package prepare

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Recovery says what Recover found and did.
type Recovery struct {
	// Kept are the claims that stay prepared.
	Kept []plan.Ref
	// Undone are the claims that were undone: their Prepare was interrupted, or they were prepared in an earlier boot.
	Undone []plan.Ref
	// Released are the claims whose interrupted release was completed.
	Released []plan.Ref
	// Quarantined are the claims whose functions are not proven clean.
	Quarantined []*journal.Record
	// Specs are the UIDs of claims whose CDI specs were removed, because the claims have no record.
	Specs []string
	// Orphans are selected functions that are on a VFIO driver and have no record: they were bound by hand, or their
	// record is damaged. Recover does not change them.
	Orphans []pci.Address
	// Unfinished are the claims that could not be recovered, and why.
	Unfinished []error
}

// recoverAtOnce is how many records are recovered at the same time. Recovery spends most of its time waiting: for
// resets of single devices, and for the locks of processes that hang in the kernel.
const recoverAtOnce = 16

// Recover completes every record after a crash, a kill or a reboot. Afterwards, either the claim is prepared, with its
// functions on their drivers and its CDI spec rewritten, or nothing of the claim is left on the node. Records are
// recovered side by side, the prepared ones first, each within [Config.RecoverLimit]. Call Recover at start. As soon as
// [Preparer.MarkEarlier] has returned, claims may be served while Recover runs: a call for a claim waits only for the
// recovery of that claim.
//
// Recover may be repeated. It returns an error only if the leftovers in the journal or the CDI specs can't be listed.
// Failures of single claims are in Unfinished, and the next Prepare or Unprepare of such a claim continues.
func (p *Preparer) Recover(ctx context.Context) (*Recovery, error) {
	records, errs := p.order.Effects.Journal.List()
	r := &Recovery{Unfinished: errs}
	if err := p.markEarlier(ctx, records, errs); err != nil {
		r.Unfinished = append(r.Unfinished, err)
	}
	uids := make([]string, len(records))
	for i, rec := range records {
		uids[i] = rec.ID()
	}
	// recall reads the ledger now. Only the function that it returns is deferred: it forgets what was read.
	defer p.recall(ctx, uids)()
	for _, one := range p.recoverAll(ctx, records) {
		r.add(one)
	}
	return r, errors.Join(p.sweepJournal(ctx, r), p.sweepSpecs(ctx, r))
}

// MarkEarlier marks the functions of claims that a stop of the node interrupted, so that they are reset before the next
// claim gets them. The marks are needed because a record of an earlier boot does not keep other claims from its
// functions, and neither does a record that can't be read. Call MarkEarlier before the first Prepare, unless Recover has
// returned by then. It waits for no lock, and may be repeated.
func (p *Preparer) MarkEarlier(ctx context.Context) error {
	records, errs := p.order.Effects.Journal.List() // Recover reports the errors
	return p.markEarlier(ctx, records, errs)
}

// markEarlier is [Preparer.MarkEarlier] for the result of [journal.Store.List].
func (p *Preparer) markEarlier(ctx context.Context, records []*journal.Record, errs []error) error {
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	var marks []journal.ResetMark
	for _, rec := range records {
		// The functions of a cleaned record were proven clean or marked before the record got that state. A quarantine
		// keeps claims from its functions without a mark.
		if rec.BootID == snap.Host.BootID || rec.State == journal.Cleaned || rec.State == journal.Quarantined {
			continue
		}
		work := rec.Clone()
		work.Proofs = nil // they are older than the last tenant
		marks = append(marks, effects.Unproven(work, "the node stopped before a reset")...)
	}
	if len(marks) > 0 {
		p.order.Effects.MakeRoom()
		if err := p.order.Effects.Journal.MarkNeedsReset(ctx, marks...); err != nil {
			return fmt.Errorf("mark the devices of claims of an earlier boot as not clean: %w", err)
		}
	}
	return p.markUnreadable(ctx, snap, errs)
}

// recoverAll recovers records side by side. The results are in their order.
func (p *Preparer) recoverAll(ctx context.Context, records []*journal.Record) []*Recovery {
	parts := make([]*Recovery, len(records))
	var g errgroup.Group
	g.SetLimit(recoverAtOnce)
	for _, prepared := range []bool{true, false} { // records of running pods are quick, and must not wait for the resets of others
		for i, rec := range records {
			if (rec.State == journal.Prepared) != prepared {
				continue
			}
			g.Go(func() error {
				parts[i] = &Recovery{}
				if err := p.recoverOne(ctx, rec.ID(), parts[i]); err != nil {
					parts[i].Unfinished = append(parts[i].Unfinished, fmt.Errorf("recover claim %s: %w", rec.Plan.Claim, err))
				}
				return nil
			})
		}
	}
	_ = g.Wait() // the goroutines return nil; the parts have their errors
	return parts
}

// add adds what the recovery of one record found and did.
func (r *Recovery) add(one *Recovery) {
	r.Kept = append(r.Kept, one.Kept...)
	r.Undone = append(r.Undone, one.Undone...)
	r.Released = append(r.Released, one.Released...)
	r.Quarantined = append(r.Quarantined, one.Quarantined...)
	r.Unfinished = append(r.Unfinished, one.Unfinished...)
}

// recall reads the ledger once for all claims, because the ledger may be large and the node's pods wait for the
// recovery. If the ledger can't be read now, the recovery of each record reads it again, and returns its own error.
func (p *Preparer) recall(ctx context.Context, uids []string) (forget func()) {
	if p.order.Effects.Ledger != nil {
		if forget, err := p.order.Effects.Ledger.Recall(ctx, uids); err == nil {
			return forget
		}
	}
	return func() {}
}

// sweepJournal removes what interrupted writes left of records that do not exist.
func (p *Preparer) sweepJournal(ctx context.Context, r *Recovery) error {
	ids, err := p.order.Effects.Journal.Leftovers()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := p.sweepRecord(ctx, id); err != nil {
			r.Unfinished = append(r.Unfinished, err)
		}
	}
	return nil
}

// sweepRecord removes the leftovers of one record. If the record exists by now, sweepRecord does nothing: the leftovers
// are removed together with the record.
func (p *Preparer) sweepRecord(ctx context.Context, id string) error {
	ctx, cancel := p.order.InTime(ctx)
	defer cancel()
	release, err := p.order.Effects.LockClaim(ctx, plan.Ref{UID: id})
	if err != nil {
		return err
	}
	defer release()
	if rec, err := p.order.Effects.Journal.Load(id); err != nil || rec != nil {
		return nil // a record that can't be read is reported by now
	}
	return p.order.Effects.Journal.Delete(id)
}

// recoverOne completes one record. It reads the record again under the claim's lock, because an older instance of the
// plugin may still have been at work on it.
func (p *Preparer) recoverOne(ctx context.Context, id string, r *Recovery) error {
	ctx, cancel := p.order.InTime(ctx)
	defer cancel()
	release, err := p.order.Effects.LockClaim(ctx, plan.Ref{UID: id})
	if err != nil {
		return err
	}
	defer release()
	rec, err := p.order.Effects.Journal.Load(id)
	if err != nil || rec == nil {
		return err
	}
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	work := rec.Clone()
	thisBoot := rec.BootID == snap.Host.BootID
	switch {
	case thisBoot && rec.State == journal.Prepared:
		return p.keep(ctx, snap, work, r)
	case rec.State == journal.Quarantined:
		r.Quarantined = append(r.Quarantined, rec)
		return errors.Join(p.order.Effects.RemoveSpec(ctx, rec), p.order.Effects.Backfill(ctx, snap, work))
	case thisBoot && rec.State != journal.Preparing:
		return p.finish(ctx, work, &r.Released, r)
	default:
		return p.finish(ctx, work, &r.Undone, r)
	}
}

// keep checks a prepared record of this boot. The record stays prepared whatever the check returns, because a running VM
// may have the functions, unless the functions had to be reset for a lost activation and could not be proven clean.
func (p *Preparer) keep(ctx context.Context, snap *device.Snapshot, rec *journal.Record, r *Recovery) error {
	err := p.order.Reaffirm(ctx, rec)
	if e, quarantined := errors.AsType[*QuarantinedError](err); quarantined {
		r.Quarantined = append(r.Quarantined, e.Record)
		return p.order.Effects.Backfill(ctx, snap, e.Record)
	}
	r.Kept = append(r.Kept, rec.Plan.Claim)
	// The events are completed even if a function is on a wrong driver, so Backfill runs whatever Reaffirm returns.
	return errors.Join(err, p.order.Effects.Backfill(ctx, snap, rec))
}

// finish ends a record, and adds its claim to the list, or to the quarantined records.
func (p *Preparer) finish(ctx context.Context, rec *journal.Record, list *[]plan.Ref, r *Recovery) error {
	err := p.order.TakeOff(ctx, rec)
	if _, quarantined := errors.AsType[*QuarantinedError](err); quarantined {
		r.Quarantined = append(r.Quarantined, rec)
		return nil
	}
	if err == nil {
		*list = append(*list, rec.Plan.Claim)
	}
	return err
}

// SweepSpecs removes those CDI specs of kata-vfio whose claims have no record on this node, and returns the UIDs of
// these claims. It may be repeated.
func (p *Preparer) SweepSpecs(ctx context.Context) ([]string, error) {
	r := &Recovery{}
	err := p.sweepSpecs(ctx, r)
	return r.Specs, errors.Join(err, errors.Join(r.Unfinished...))
}

// sweepSpecs removes CDI specs of claims that are not prepared here.
func (p *Preparer) sweepSpecs(ctx context.Context, r *Recovery) error {
	uids, err := p.order.Effects.Specs.Claims()
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if err := p.sweepSpec(ctx, uid, r); err != nil {
			r.Unfinished = append(r.Unfinished, err)
		}
	}
	return nil
}

// sweepSpec removes one spec that has no record. It looks for the record again under the claim's lock, because an older
// instance of the plugin may just be preparing the claim.
func (p *Preparer) sweepSpec(ctx context.Context, uid string, r *Recovery) error {
	if rec, err := p.order.Effects.Journal.Load(uid); err != nil || rec != nil {
		return nil // a record that can't be read is reported by now, and may well be of a VM that runs
	}
	ctx, cancel := p.order.InTime(ctx)
	defer cancel()
	release, err := p.order.Effects.LockClaim(ctx, plan.Ref{UID: uid})
	if err != nil {
		return err
	}
	defer release()
	if rec, err := p.order.Effects.Journal.Load(uid); err != nil || rec != nil {
		return nil // it came meanwhile
	}
	if err := p.order.Effects.Specs.Remove(uid); err != nil {
		return err
	}
	r.Specs = append(r.Specs, uid)
	return nil
}
