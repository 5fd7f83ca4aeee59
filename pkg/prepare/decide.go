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

// decide makes the plan and writes the record. If the plugin crashes after that, Recover undoes the record. The
// decision depends on the records of other claims in the same exclusive domains, but the lock of a function covers only
// that function. So decide holds one lock for all domains until the record is on disk.
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

// announce completes the plan and writes the record. The MAC address or GUID of a VF must differ from those in all
// records, so announce holds a lock from the choice of the address until the record is on disk.
func (o *Order) announce(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if rec.Plan.HasVF() {
		release, err := o.Effects.Lock(ctx, rec.Plan.Claim, []effects.Lock{{Name: "vf-addresses", Kept: true}})
		if err != nil {
			return err
		}
		defer release()
	}
	// The resolvers only read. The record contains what they find before the first effect, so that an undo knows which
	// values to restore.
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

// intend writes the record and, at the same time, looks for holders. Both must be done before the first step, and both
// take a while. If there is a holder, intend removes the record again.
func (o *Order) intend(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	ref, addrs := rec.Plan.Claim, rec.Plan.Addresses() // save changes rec
	held := make(chan error, 1)
	go func() { held <- o.Effects.Untaken(ctx, snap, ref, addrs) }()
	saveErr := o.Effects.Save(rec, journal.Preparing, "")
	heldErr := <-held
	if saveErr == nil && heldErr != nil {
		// No effect of this record has begun, so the record is removed without an undo.
		saveErr = o.Effects.Forget(rec)
	}
	return errors.Join(heldErr, saveErr)
}
