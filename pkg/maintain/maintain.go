// Package maintain takes care of a node's functions outside the life of a claim: it drains them, clears quarantines, returns
// orphans, creates the VFs of PFs, binds functions of policy "bound" to VFIO, and keeps free devices ready for claims. It
// works with the locks, records and effects of package prepare, so that it may run while claims come and go.
package maintain

import (
	"context"
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Eswitches are the switches inside PFs; see package vf.
type Eswitches interface {
	// Mode returns the empty mode if the PF's driver has none.
	Mode(ctx context.Context, pf pci.Address) (vf.Mode, error)
	// SetMode sets the mode of the eswitch of a PF that has no VFs, and reads it back.
	SetMode(ctx context.Context, pf pci.Address, m vf.Mode) error
}

// Maintainer keeps a node's functions in order. Its methods may be called from several
// goroutines, and while claims are prepared.
type Maintainer struct {
	order     *prepare.Order
	eswitches Eswitches
}

// New returns a Maintainer that works in the order of a [prepare.Preparer].
func New(order *prepare.Order, e Eswitches) *Maintainer {
	return &Maintainer{order: order, eswitches: e}
}

// AfterRecover is the next step after [prepare.Preparer.Recover]: it finishes drains, and adds functions that no record
// explains to the recovery.
func (m *Maintainer) AfterRecover(ctx context.Context, r *prepare.Recovery) error {
	if _, err := m.FinishDrains(ctx); err != nil {
		r.Unfinished = append(r.Unfinished, err)
	}
	return m.findOrphans(ctx, r)
}

// boundID is the record's ID of a function that is bound without a claim.
func boundID(f *device.Function) string { return ledger.BindingUID + f.Address.Label() }

// BindByPolicy binds every function of policy "bound" that has a host driver and is not drained, each with its own
// record, so that it is ready for claims and its original driver is known. Call it after Recover; it may be repeated.
// Functions that can't be bound are reported together and stay unchanged. It skips functions that a claim has.
func (m *Maintainer) BindByPolicy(ctx context.Context) error {
	return m.BindSomeByPolicy(ctx, func(pci.Address) bool { return true })
}

// BindSomeByPolicy is BindByPolicy for the functions that meant selects.
func (m *Maintainer) BindSomeByPolicy(ctx context.Context, meant func(pci.Address) bool) error {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	drained, err := m.order.Planning.Drained(snap)
	if err != nil {
		return err
	}
	n := m.order.Planning.WithOwners(snap)
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		choice := n.Selection.Choice(f.Address)
		holding, held := n.Owners[f.Address]
		// A drained function stays where the operator wants it, and a claim's own record decides its functions' bindings.
		if _, out := plan.FindDrain(snap, f, drained); out || held && !holding.Bound || !meant(f.Address) {
			continue
		}
		if choice.Ours && choice.Policy == v1alpha1.PolicyBound && !f.OnVFIO() {
			errs = append(errs, m.bindByPolicy(ctx, f))
		}
	}
	return errors.Join(errs...)
}

// bindByPolicy does so for one, within the limit for one record.
func (m *Maintainer) bindByPolicy(ctx context.Context, f *device.Function) error {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	req := &claim.Request{
		UID: boundID(f),
		Devices: []claim.Device{{
			Request: "standing", Name: f.Name(), Address: f.Address,
			VFIO: boundConfig(),
		}},
	}
	release, err := m.order.Effects.LockClaim(ctx, plan.NewRef(req))
	if err != nil {
		return err
	}
	defer release()
	rec, err := m.order.Effects.Journal.Load(req.UID)
	if err != nil {
		return err
	}
	if rec != nil {
		work := *rec
		if stands, err := m.order.ReaffirmBound(ctx, &work); stands || err != nil {
			return err
		}
	}
	_, err = m.order.Begin(ctx, req, journal.Bound)
	return err
}

// boundConfig requests the binding alone: the requirements of a tenant are checked when a claim comes.
func boundConfig() v1alpha1.VFIOConfig {
	allow := true
	cfg := v1alpha1.VFIOConfig{Reset: v1alpha1.ResetSkip, AllowUnisolated: &allow}
	cfg.Default()
	return cfg
}
