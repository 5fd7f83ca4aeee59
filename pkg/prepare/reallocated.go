package prepare

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// A claim outlives its pods: once nobody uses it, its allocation is withdrawn, and the next
// pod's may be of other devices. The kubelet unprepares it in between, unless it has lost
// its state. What is prepared by the former allocation is released first.

// ReallocatedError says that a claim is allocated again, with other devices, and that those of
// its former allocation can't be released yet. The next Prepare tries again.
type ReallocatedError struct {
	Claim       plan.Ref
	Have, Asked []string
	// Err is what keeps the former devices.
	Err error
}

func (e *ReallocatedError) Error() string {
	return fmt.Sprintf("claim %s is allocated %s now, and %s of its former allocation can't be released: %s",
		e.Claim, strings.Join(e.Asked, ", "), strings.Join(e.Have, ", "), oneLine(e.Err))
}

func (e *ReallocatedError) Unwrap() error { return e.Err }

// reallocate releases what a record has by a former allocation of its claim, by the way that
// Unprepare takes, and then prepares the claim. What is not proven clean stays in quarantine,
// and does not keep the claim from its other devices.
func (p *Preparer) reallocate(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	work := *rec
	err := error(nil)
	if rec.State != journal.Quarantined {
		err = p.takeOff(ctx, &work)
	}
	if q, ok := errors.AsType[*QuarantinedError](err); ok {
		work, err = *q.Record, nil
	}
	if err == nil && work.State == journal.Quarantined {
		err = p.setAside(ctx, &work)
	}
	if err != nil {
		return nil, &ReallocatedError{Claim: rec.Plan.Claim, Have: names(&rec.Plan), Asked: askedFor(req), Err: err}
	}
	return p.begin(ctx, req, rec.Kind)
}

// setAside keeps a quarantine under an ID of its own, so that its claim's UID is free for
// another record. It may be repeated: a crash leaves the quarantine under one of the two IDs,
// or under both.
func (p *Preparer) setAside(ctx context.Context, rec *journal.Record) error {
	aside := *rec
	aside.Plan.Claim.UID = asideID(rec)
	release, err := p.lock(ctx, aside.Plan.Claim, []Lock{claimLock(aside.ID())})
	if err != nil {
		return err
	}
	defer release()
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := p.keep(&aside); err != nil {
		return err
	}
	if err := p.backfill(ctx, snap, &aside); err != nil {
		return err
	}
	return p.end(ctx, rec, ledger.CodeUnproven, "the claim is allocated again, and the quarantine goes on as "+aside.ID())
}

// asideID is the claim's UID and the first function. No UID has a ".".
func asideID(rec *journal.Record) string {
	return rec.ID() + "." + rec.Plan.Functions[0].Address.Label()
}

// UnprepareIf is [Preparer.Unprepare] of a claim of which the check still returns nil, with the
// claim's lock held: no Prepare comes between the two. It returns the check's error otherwise.
func (p *Preparer) UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) ([]isolation.Proof, error) {
	return p.unprepare(ctx, uid, check)
}
