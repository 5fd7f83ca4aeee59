package prepare

import (
	"context"
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// decide makes the plan and writes the record, from which on a crash leaves a record that Recover undoes. Functions of an
// exclusive domain have locks of their own each, so a lock for all domains is held from the decision, which goes by the
// records of other claims, until the record is on disk.
func (o *Order) decide(ctx context.Context, req *claim.Request, kind journal.Kind, snap *device.Snapshot, changes []func(*plan.Plan)) (*journal.Record, error) {
	if o.Config.Node.HasExclusive() {
		release, err := o.Effects.Lock(ctx, plan.NewRef(req), []effects.Lock{{Name: "exclusive-domains", Kept: true}})
		if err != nil {
			return nil, err
		}
		defer release()
	}
	pl, err := o.Planning.Make(req, snap)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		change(pl)
	}
	rec := &journal.Record{Kind: kind, BootID: snap.Host.BootID, Plan: *pl}
	return rec, o.announce(ctx, snap, rec)
}

// announce completes the plan and writes the record. An address must differ from those of all records, so a lock is
// held from its choice until the record is on disk.
func (o *Order) announce(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if rec.Plan.HasVF() {
		release, err := o.Effects.Lock(ctx, rec.Plan.Claim, []effects.Lock{{Name: "vf-addresses", Kept: true}})
		if err != nil {
			return err
		}
		defer release()
	}
	// The resolvers only read. What they find is in the record before the first effect, so that an undo knows what to put
	// back.
	if err := o.Effects.ResolveEndpoints(snap, rec); err != nil {
		return err
	}
	if err := o.Effects.ResolveVFs(ctx, rec); err != nil {
		return err
	}
	if err := o.Effects.ResolveSettings(ctx, rec); err != nil {
		return err
	}
	if err := o.Effects.CheckPools(rec); err != nil {
		return err
	}
	return o.intend(ctx, snap, rec)
}

// intend writes the record and looks for holders at the same time: both must be
// done before the first step, and both take a while. If there is a holder, it removes
// the record.
func (o *Order) intend(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	ref, addrs := rec.Plan.Claim, rec.Plan.Addresses() // save changes rec
	held := make(chan error, 1)
	go func() { held <- o.Effects.Untaken(ctx, snap, ref, addrs) }()
	saveErr := o.Effects.Save(rec, journal.Preparing, "")
	heldErr := <-held
	if saveErr == nil && heldErr != nil {
		// No effect has begun under this record, so it goes without an undo.
		saveErr = o.Effects.Forget(rec)
	}
	return errors.Join(heldErr, saveErr)
}
