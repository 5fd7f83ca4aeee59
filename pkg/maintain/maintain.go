// Package maintain takes care of a node's functions outside the life of a claim. It drains functions, clears
// quarantines, returns orphans, creates the VFs of PFs, binds functions of policy "bound" to VFIO, and keeps free
// devices ready for claims. It uses the locks, records and effects of package prepare, so it may run while claims come
// and go.
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
	// Mode returns the mode of the PF's eswitch. It is empty if the PF's driver has no eswitch modes.
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

// New returns a Maintainer that shares the [prepare.Order] of a [prepare.Preparer].
func New(order *prepare.Order, e Eswitches) *Maintainer {
	return &Maintainer{order: order, eswitches: e}
}

// AfterRecover completes the work of [prepare.Preparer.Recover]: it finishes drains, and adds functions without a
// record to r's orphans.
func (m *Maintainer) AfterRecover(ctx context.Context, r *prepare.Recovery) error {
	if _, err := m.FinishDrains(ctx); err != nil {
		r.Unfinished = append(r.Unfinished, err)
	}
	return m.findOrphans(ctx, r)
}

// boundID returns the ID of the record of a function that is bound without a claim.
func boundID(f *device.Function) string { return ledger.BindingUID + f.Address.Label() }

// BindByPolicy binds every function of policy "bound" that is not on VFIO, not drained, and that no claim has. Each
// gets a record of its own, so that it is ready for claims and its original driver is known. Functions that can't be
// bound stay unchanged, and are reported together. Call BindByPolicy after Recover. It may be repeated.
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
	n, drains := m.order.Planning.WithOwners(snap), plan.NewDrains(snap, drained)
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		choice := n.Selection.Choice(f.Address)
		holding, held := n.Owners[f.Address]
		// A drained function stays where the operator wants it. The bindings of a claim's functions are decided by the
		// claim's own record.
		if _, out := drains.Find(f); out || held && !holding.Bound || !meant(f.Address) {
			continue
		}
		if choice.Ours && choice.Policy == v1alpha1.PolicyBound && !f.OnVFIO() {
			errs = append(errs, m.bindByPolicy(ctx, f))
		}
	}
	return errors.Join(errs...)
}

// bindByPolicy binds one function of policy "bound", within the limit for one record.
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
		work := rec.Clone()
		if stands, err := m.order.ReaffirmBound(ctx, work); stands || err != nil {
			return err
		}
	}
	_, err = m.order.Begin(ctx, req, journal.Bound)
	return err
}

// boundConfig returns parameters that request only the binding. What a tenant requires is checked when a claim comes.
func boundConfig() v1alpha1.VFIOConfig {
	allow := true
	cfg := v1alpha1.VFIOConfig{Reset: v1alpha1.ResetSkip, AllowUnisolated: &allow}
	cfg.Default()
	return cfg
}
