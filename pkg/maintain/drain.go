package maintain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// A drain is only a mark. As soon as the mark is on disk, plans refuse the function. The progress of the drain follows
// from the records. So a crash leaves nothing to undo, and the next look (by the command, the plugin or AfterRecover)
// finishes the drain.

// ErrNotOurs is the error for a function that can't be drained, because no claim can get it.
var ErrNotOurs = errors.New("kata-vfio does not publish the device")

// ErrNotDrained is the error for a drain that was ended, perhaps by another process.
var ErrNotDrained = errors.New("the device is not drained")

// WouldDrain returns the result that Drain would have, and changes nothing.
func (m *Maintainer) WouldDrain(ctx context.Context, d journal.Drain) (*Draining, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.resolveDrain(snap, &d); err != nil {
		return nil, err
	}
	return m.draining(snap, d), nil
}

// drains returns the drains with their functions' addresses in a snapshot.
func (m *Maintainer) drains(snap *device.Snapshot) ([]journal.Drain, error) {
	drains, err := m.order.Effects.Journal.Drains()
	return journal.LocateDrains(drains, snap), err
}

// resolveDrain completes a requested drain with facts of the node.
func (m *Maintainer) resolveDrain(snap *device.Snapshot, d *journal.Drain) error {
	drains, err := m.drains(snap)
	if err != nil {
		return err
	}
	f, ok := snap.Function(d.Address)
	if !ok {
		return fmt.Errorf("%w: this node has no PCI function %s", ErrNotOurs, d.Address)
	}
	d.Identity = snap.Identify(f)
	if i := slices.IndexFunc(drains, func(o journal.Drain) bool { return o.Address == d.Address && !o.Gone }); i >= 0 {
		d.Since, d.Identity = drains[i].Since, drains[i].Identity
		return nil
	}
	selection := nodeconfig.Select(m.order.Effects.Node, snap)
	ours := func(f *device.Function) bool { return selection.Choice(f.Address).Ours }
	if !slices.ContainsFunc(plan.DrainSet(snap, f), ours) {
		return fmt.Errorf("%w: %s: %s", ErrNotOurs, f.Address, selection.Choice(f.Address).Why)
	}
	return nil
}

// Drain drains a function and all functions of its drain set, and returns them to their drivers if no claim has them.
// Otherwise FinishDrains does that after the last claim has ended. Drain may be repeated, also with another reason.
// Drains are independent: a function of the set can have a mark of its own. If Drain fails before the mark is written,
// nothing has changed. After a later error, the drain is in effect, and the next look continues it.
//
// Errors a caller may branch on: [ErrNotOurs], [effects.EvidenceError].
func (m *Maintainer) Drain(ctx context.Context, d journal.Drain, by ledger.Operator) (*Draining, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.resolveDrain(snap, &d); err != nil {
		return nil, err
	}
	if d.Since == "" {
		d.Since = time.Now().UTC().Format(time.RFC3339)
	}
	d.By = by.String()
	// A Prepare holds the same locks until its record exists. So each claim either has a record now, or will see the
	// mark.
	err = m.withDrainSet(ctx, d.Address, func(snap *device.Snapshot) error {
		if err := m.recordDrain(ctx, snap, ledger.Drain, d.Address, d.Reason, by); err != nil {
			return err
		}
		return m.order.Effects.Journal.MarkDrained(ctx, d)
	})
	if err != nil {
		return nil, err
	}
	return m.FinishDrain(ctx, d)
}

// Undrain removes the mark that drains a function, and binds functions of policy "bound" to VFIO again. It returns the
// address of the drain, and false if the function was not drained. It may be repeated. If another mark also covers the
// function, it must be repeated to remove that one too ([Maintainer.DrainedWith]).
func (m *Maintainer) Undrain(ctx context.Context, a pci.Address, reason string, by ledger.Operator) (pci.Address, bool, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return a, false, err
	}
	drains, err := m.drains(snap)
	if err != nil {
		return a, false, err
	}
	named, ok := drainedWith(snap, a, drains)
	if !ok {
		return a, false, nil
	}
	a = named.Address
	err = m.withDrainSet(ctx, a, func(snap *device.Snapshot) error {
		if err := m.recordDrain(ctx, snap, ledger.Undrain, a, reason, by); err != nil {
			return err
		}
		if err := m.accountForAll(ctx, drainAddresses(snap, a)); err != nil {
			return err
		}
		return m.order.Effects.Journal.LiftDrain(ctx, named)
	})
	if err != nil {
		return a, false, err
	}
	addrs := drainAddresses(snap, a)
	// The mark is removed now. A crash here leaves the functions on their host drivers, and the binding by policy can
	// be repeated, also by Undrain.
	return a, true, m.BindSomeByPolicy(ctx, func(a pci.Address) bool { return slices.Contains(addrs, a) })
}

// accountForAll accounts for the fatal errors of all functions that an operator returns to use.
func (m *Maintainer) accountForAll(ctx context.Context, addrs []pci.Address) error {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	for _, a := range addrs {
		if err == nil {
			err = m.order.Effects.AccountForErrors(ctx, snap.Host.BootID, a)
		}
	}
	return err
}

// DrainedWith returns the address of the drain that covers a function: the function's own address, or that of a
// function whose drain set includes it. It returns false if the function is not drained.
func (m *Maintainer) DrainedWith(ctx context.Context, a pci.Address) (pci.Address, bool, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return a, false, err
	}
	drains, err := m.drains(snap)
	if err != nil {
		return a, false, err
	}
	d, ok := drainedWith(snap, a, drains)
	if !ok {
		return a, false, nil
	}
	return d.Address, true, nil
}

// Drains returns the drains with their progress, by the latest snapshot and
// the journal.
func (m *Maintainer) Drains(ctx context.Context) ([]Draining, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return m.DrainsIn(snap)
}

// DrainsIn is Drains by a snapshot that the caller has.
func (m *Maintainer) DrainsIn(snap *device.Snapshot) ([]Draining, error) {
	drains, err := m.drains(snap)
	if err != nil || len(drains) == 0 {
		return nil, err
	}
	all := make([]Draining, 0, len(drains))
	for _, d := range drains {
		all = append(all, *m.draining(snap, d))
	}
	return all, nil
}

// FinishDrains continues every drain: functions that no claim has return to their drivers, even if policy "bound" keeps
// them on VFIO. Functions in use stay where they are until a later call. FinishDrains may be repeated.
func (m *Maintainer) FinishDrains(ctx context.Context) ([]Draining, error) {
	drains, err := m.order.Effects.Journal.Drains()
	if err != nil {
		return nil, err
	}
	var all []Draining
	var errs []error
	for _, d := range drains {
		state, err := m.FinishDrain(ctx, d)
		// Another process removed the drain after the list was read.
		if errors.Is(err, ErrNotDrained) {
			continue
		}
		if state != nil {
			all = append(all, *state)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// FinishDrain continues one drain. If it can't get the lock of a function within the limit for one record, it returns
// an error, and the next look tries again.
//
// Errors a caller may branch on: [ErrNotDrained].
func (m *Maintainer) FinishDrain(ctx context.Context, d journal.Drain) (*Draining, error) {
	state, err := m.drainingNow(ctx, d)
	if err != nil || !state.Due() {
		return state, err
	}
	var errs []error
	for _, rec := range state.bound {
		if err := m.endBound(ctx, rec.ID(), d); err != nil {
			errs = append(errs, fmt.Errorf("return %s to its driver: %w", d.Address, err))
		}
	}
	if len(errs) > 0 {
		return state, errors.Join(errs...)
	}
	return m.drainingNow(ctx, d)
}

// drainingNow returns the progress of a drain, after it has read the functions and the mark again.
func (m *Maintainer) drainingNow(ctx context.Context, d journal.Drain) (*Draining, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	located := journal.LocateDrains([]journal.Drain{d}, snap)
	if snap, err = m.order.Effects.Refresh(ctx, plan.Ref{}, drainAddresses(snap, located[0].Address)); err != nil {
		return nil, err
	}
	drains, err := m.drains(snap)
	if err != nil {
		return nil, err
	}
	now, stands := again(d, drains)
	if !stands {
		return nil, fmt.Errorf("drain of %s: %w", d.Address, ErrNotDrained)
	}
	return m.draining(snap, now), nil
}

// endBound returns a function of policy "bound" to its driver. With the locks held, it checks again that the drain
// still stands and that no claim has the function.
func (m *Maintainer) endBound(ctx context.Context, id string, drained journal.Drain) error {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	release, err := m.order.Effects.LockClaim(ctx, plan.Ref{UID: id})
	if err != nil {
		return err
	}
	defer release()
	rec, err := m.order.Effects.Journal.Load(id)
	if err != nil || rec == nil {
		return err
	}
	snap, unlock, err := m.order.Effects.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer unlock()
	drains, err := m.drains(snap)
	if err != nil {
		return err
	}
	d, stands := again(drained, drains)
	if !stands {
		return nil
	}
	if !m.draining(snap, d).Due() {
		return nil
	}
	work := rec.Clone()
	return m.order.TakeOffLocked(ctx, snap, work)
}

// withDrainSet runs work under the locks of all functions that go with a drain.
func (m *Maintainer) withDrainSet(ctx context.Context, a pci.Address, work func(*device.Snapshot) error) error {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	// This request only names functions for their locks, and is never prepared.
	req := &claim.Request{}
	for _, a := range drainAddresses(snap, a) {
		req.Devices = append(req.Devices, claim.Device{Address: a})
	}
	snap, release, err := m.order.Effects.LockRequest(ctx, req, snap)
	if err != nil {
		return err
	}
	defer release()
	return work(snap)
}

// recordDrain writes the event of a drain to the ledger before the drain has an effect.
func (m *Maintainer) recordDrain(ctx context.Context, snap *device.Snapshot, t ledger.Type, a pci.Address, reason string, by ledger.Operator) error {
	if m.order.Effects.Ledger == nil {
		return nil
	}
	e := ledger.Event{Type: t, Result: ledger.OK, Reason: reason, By: &by}
	for _, a := range drainAddresses(snap, a) {
		d := ledger.Device{Address: a}
		if f, ok := snap.Function(a); ok {
			d.Name = f.Name()
		}
		e.Devices = append(e.Devices, d)
	}
	// The append continues even if the caller gives up. If it fails, the drain stops before it has an effect.
	err := m.order.Effects.Observe.Timed(plan.Ref{}, effects.PhaseLedger, func() error {
		_, err := m.order.Effects.Ledger.Append(context.WithoutCancel(ctx), e)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s of %s: %w", t, a, &effects.EvidenceError{Err: err})
	}
	return nil
}
