package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// A claim outlives its pods. When no pod uses a claim, its allocation is withdrawn, and for the next pod it may be
// allocated other devices. The kubelet unprepares the claim in between, unless the kubelet has lost its state. So
// Prepare first releases the devices that are prepared for the former allocation.

// ReallocatedError says that a claim is allocated again, with other devices, and that the devices of its former
// allocation can't be released yet. The next Prepare tries again.
type ReallocatedError struct {
	Claim       plan.Ref
	Have, Asked []string
	// Err says why the former devices can't be released.
	Err error
}

func (e *ReallocatedError) Error() string {
	return fmt.Sprintf("claim %s is now allocated %s, and %s of its former allocation can't be released: %s",
		e.Claim, strings.Join(e.Asked, ", "), strings.Join(e.Have, ", "), effects.OneLine(e.Err))
}

func (e *ReallocatedError) Unwrap() error { return e.Err }

// reallocate releases the devices of the claim's former allocation, as Unprepare does, and then prepares the claim.
// Devices that are not proven clean stay in quarantine, but the claim can still get its other devices.
func (p *Preparer) reallocate(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	work, err := rec.Clone(), error(nil)
	// A quarantine is not tested again here: only Unprepare and an operator do that.
	if rec.State != journal.Quarantined {
		err = p.order.TakeOff(ctx, work)
	}
	if _, quarantined := errors.AsType[*QuarantinedError](err); quarantined || rec.State == journal.Quarantined {
		err = p.setAside(ctx, work)
	}
	if err != nil {
		return nil, &ReallocatedError{Claim: rec.Plan.Claim, Have: names(&rec.Plan), Asked: askedFor(req), Err: err}
	}
	return p.order.Begin(ctx, req, rec.Kind)
}

// setAside moves a quarantine to an ID of its own, so that the claim's UID is free for another record. It may be
// repeated: after a crash, the quarantine is under one of the two IDs, or under both.
func (p *Preparer) setAside(ctx context.Context, rec *journal.Record) error {
	aside := rec.Clone()
	aside.Plan.Claim.UID = asideID(rec)
	release, err := p.order.Effects.LockClaim(ctx, aside.Plan.Claim)
	if err != nil {
		return err
	}
	defer release()
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	// Two records for one quarantine are safe, but without a record the device would be free. So the copy is on disk
	// before End removes the original.
	if err := p.order.Effects.Keep(aside); err != nil {
		return err
	}
	if err := p.order.Effects.Backfill(ctx, snap, aside); err != nil {
		return err
	}
	return p.order.Effects.End(ctx, rec, ledger.CodeUnproven, "the claim is allocated again, and the quarantine continues as "+aside.ID())
}

// asideID returns an ID made of the claim's UID and its first function. No UID has a ".".
func asideID(rec *journal.Record) string {
	return rec.ID() + "." + rec.Plan.Functions[0].Address.Label()
}

// names returns a plan's device names, and askedFor a request's, sorted.
func names(pl *plan.Plan) []string {
	list := make([]string, len(pl.Devices))
	for i, d := range pl.Devices {
		list[i] = d.Name
	}
	slices.Sort(list)
	return list
}

func askedFor(req *claim.Request) []string {
	list := make([]string, len(req.Devices))
	for i, d := range req.Devices {
		list[i] = d.Name
	}
	slices.Sort(list)
	return list
}
