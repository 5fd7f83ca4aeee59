package prepare

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A function leaves its claim proven clean or marked: who drops the record of
// a claim that may have had a VM, without a proof, marks the function first,
// and the next claim whose class asks for resets has it reset on the way in.

// needsReset returns the functions that are marked.
func (p *Preparer) needsReset() (map[pci.Address]bool, error) {
	marks, err := p.Journal.NeedsReset()
	if err != nil {
		return nil, err
	}
	addrs := map[pci.Address]bool{}
	for a := range marks {
		addrs[a] = true
	}
	return addrs, nil
}

// mark marks what the record's VM could reach and no proof covers, and lifts
// the marks of what is proven. It may be repeated.
func (p *Preparer) mark(rec *journal.Record, why string) error {
	if rec.Kind == journal.Bound {
		return nil // no VM gets a function by such a record
	}
	for _, a := range rec.Plan.Reachable() {
		if isProven(rec, a) {
			if err := p.provenClean(rec.BootID, a); err != nil {
				return err
			}
			continue
		}
		m := journal.ResetMark{Address: a, Claim: rec.ID(), Why: why, Since: time.Now().UTC().Format(time.RFC3339)}
		if err := p.Journal.MarkNeedsReset(m); err != nil {
			return err
		}
	}
	return nil
}

// isProven reports whether a proof of the record covers the function.
func isProven(rec *journal.Record, a pci.Address) bool {
	return slices.ContainsFunc(rec.Proofs, func(proof isolation.Proof) bool { return slices.Contains(proof.Set, a) })
}

// resetBefore makes the resets that are due before the record's tenant, enters
// their proofs into the record and lifts the marks. What can't be proven clean
// is quarantined. The functions are on their targets.
//
// A proof here says that the kernel has reset the function and that it answers
// as before the reset: what it was before its last tenant may be of another
// boot, in which firmware placed its BARs elsewhere. So it is measured, and the record
// keeps that, before the first reset only: the next call may have to go on from there.
func (p *Preparer) resetBefore(ctx context.Context, rec *journal.Record) error {
	if len(rec.Plan.ResetsBefore) == 0 {
		return nil
	}
	if !isResettingBefore(rec) {
		if err := p.measure(ctx, rec); err != nil {
			return err
		}
		if err := p.keep(rec); err != nil {
			return err
		}
	}
	if err := p.resetAll(ctx, rec, rec.Plan.ResetsBefore); err != nil {
		return p.failedReset(ctx, rec, err)
	}
	for _, proof := range rec.Proofs {
		for _, a := range proof.Set {
			if err := p.provenClean(rec.BootID, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// resetAll makes resets of a record, devices side by side, and enters the
// proofs into the record.
func (p *Preparer) resetAll(ctx context.Context, rec *journal.Record, resets []isolation.Reset) error {
	proofs := make([]*isolation.Proof, len(resets))
	errs := make([]error, len(resets))
	var g errgroup.Group
	for i, r := range resets {
		g.Go(func() error {
			proofs[i], errs[i] = p.reset(ctx, rec, r)
			return nil
		})
	}
	_ = g.Wait() // the goroutines return nil; errs has theirs
	rec.Proofs = nil
	for _, proof := range proofs {
		if proof != nil {
			rec.Proofs = append(rec.Proofs, *proof)
		}
	}
	return errors.Join(errs...)
}
