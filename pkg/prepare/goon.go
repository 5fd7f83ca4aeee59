package prepare

import (
	"context"
	"errors"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// A reset on the way in may take longer than the kubelet waits for one call. It can't
// be taken back while it is in the kernel, and if it were then, the next call would
// begin another one. So the record stays as it is, and the next call takes the result.

// isResettingBefore reports whether the resets on a record's way in have begun.
func isResettingBefore(rec *journal.Record) bool {
	return rec.State == journal.Preparing && len(rec.Plan.ResetsBefore) > 0 && rec.Baseline != nil
}

// inKernel reports whether an error says that a reset is in the kernel still.
func inKernel(err error) bool {
	unfinished, ok := errors.AsType[*bind.UnfinishedError](err)
	return ok && unfinished.InKernel()
}

// goOn goes on with a claim whose resets on the way in have begun. The record is nil
// without an error where the claim has to be taken back first: what was planned is not
// what would be planned now.
func (p *Preparer) goOn(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, release, err := p.lockRecord(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := p.unheld(ctx, snap, rec.Plan.Claim, rec.Plan.Addresses()); err != nil {
		return nil, err
	}
	now, err := p.plan(req, snap)
	if _, refused := errors.AsType[*plan.RefusedError](err); refused {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !takesTheSame(now, &rec.Plan) {
		return nil, nil
	}
	own := *rec
	own.Plan.Claim = now.Claim
	return p.conclude(ctx, &own, p.carryIn(ctx, &own))
}

// takesTheSame reports whether two plans take the same functions from the same groups
// to the same drivers.
func takesTheSame(a, b *plan.Plan) bool {
	return slices.EqualFunc(a.Functions, b.Functions, func(a, b plan.Function) bool {
		return a.Address == b.Address && a.Vendor == b.Vendor && a.Device == b.Device &&
			a.Group == b.Group && a.Role == b.Role && a.Target == b.Target
	})
}
