package prepare

import (
	"context"
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// BoundID is the record's ID of a function that is bound from start-up on.
func BoundID(f *device.Function) string { return "standing-" + f.Address.Label() }

// BindByPolicy binds every function of policy "bound" that is on a host driver
// now, each with a record of its own, so that its claims find it ready and
// its original driver is known; not what is drained. Call it after Recover; it may be repeated.
// Functions that can't be bound are reported together and left as they are. A
// function that a claim has is the claim's.
func (p *Preparer) BindByPolicy(ctx context.Context) error {
	return p.BindByPolicyOf(ctx, func(pci.Address) bool { return true })
}

// BindByPolicyOf is BindByPolicy for those of the functions that are meant.
func (p *Preparer) BindByPolicyOf(ctx context.Context, meant func(pci.Address) bool) error {
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	drained, err := p.drained()
	if err != nil {
		return err
	}
	n := p.node(snap)
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		choice := n.Selection.Choice(f.Address)
		holding, held := n.Owners[f.Address]
		if _, out := plan.DrainOf(snap, f, drained); out || held && !holding.Bound || !meant(f.Address) {
			continue
		}
		if choice.Ours && choice.Policy == v1alpha1.PolicyBound && !device.IsVFIO(f.Driver) {
			errs = append(errs, p.bindByPolicy(ctx, f))
		}
	}
	return errors.Join(errs...)
}

// bindByPolicy does so for one, within the limit for one record.
func (p *Preparer) bindByPolicy(ctx context.Context, f *device.Function) error {
	ctx, cancel := p.inTime(ctx)
	defer cancel()
	req := &claim.Request{
		UID: BoundID(f),
		Devices: []claim.Device{{
			Request: "standing", Name: f.Name(), Address: f.Address,
			VFIO: boundConfig(),
		}},
	}
	release, err := p.lock(ctx, plan.RefOf(req), []Lock{claimLock(req.UID)})
	if err != nil {
		return err
	}
	defer release()
	rec, err := p.Journal.Load(req.UID)
	if err != nil {
		return err
	}
	if rec != nil {
		work := *rec
		return p.reaffirm(ctx, &work)
	}
	_, err = p.begin(ctx, req, journal.Bound)
	return err
}

// boundConfig asks for nothing but the binding itself: what a function
// must be for a tenant is asked when a claim comes.
func boundConfig() v1alpha1.VFIOConfig {
	allow := true
	cfg := v1alpha1.VFIOConfig{Reset: v1alpha1.ResetSkip, AllowUnisolated: &allow}
	cfg.Default()
	return cfg
}
