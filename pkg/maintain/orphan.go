package maintain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Orphan is a function on a VFIO driver that the node config selects and no record explains.
type Orphan struct {
	Address pci.Address
	// GivenBack is the driver to which the function was returned; empty if it was not returned.
	GivenBack string
	// Why says why the function was left alone. Err is the error if its return failed; then the next look tries again.
	Why string
	Err error
}

// GiveBackOrphans returns orphans to their drivers, if the ledger says that kata-vfio bound them in this boot, and from
// which driver. It leaves all other orphans alone. It also leaves functions of policy "bound" alone, and VFs, whose
// former settings only the lost record had. It resets each orphan before the return, because the last tenant may have
// prepared it to attack the host's driver, and marks it, because it is not proven clean. It writes the end of the
// claims that had the orphan to the ledger. It may be repeated, and retries returns that failed.
func (m *Maintainer) GiveBackOrphans(ctx context.Context) ([]Orphan, error) {
	all := m.retryOrphans(ctx)
	r := &prepare.Recovery{}
	if err := m.findOrphans(ctx, r); err != nil {
		return all, err
	}
	m.rememberEvents(ctx, r.Orphans)
	for _, a := range r.Orphans {
		s, err := m.giveBackOrphan(ctx, a)
		if err != nil {
			s = &Orphan{Address: a, Err: fmt.Errorf("orphan %s: %w", a, err)}
		}
		if s != nil {
			all = append(all, *s)
		}
	}
	return all, nil
}

// rememberEvents reads the ledger once for all orphans. Devices that are on VFIO from the node's start on are orphans
// at each look, and the ledger may be large. If the ledger can't be read now, it is read again for each orphan, and
// only an orphan for which that fails is not returned.
func (m *Maintainer) rememberEvents(ctx context.Context, orphans []pci.Address) {
	if m.order.Effects.Ledger != nil && len(orphans) > 0 {
		_ = m.order.Effects.Ledger.Remember(ctx, orphans, ledger.Bind, ledger.Quarantine, ledger.Release, ledger.Prepare)
	}
}

// findOrphans lists the selected functions on VFIO drivers that no record explains. It reads them again, because the
// snapshot may be older than the steps that were just undone.
func (m *Maintainer) findOrphans(ctx context.Context, r *prepare.Recovery) error {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snap, err = m.order.Effects.Inventory.Refresh(ctx, m.orphans(snap)); err != nil {
		return err
	}
	r.Orphans = m.orphans(snap)
	return nil
}

// orphans returns the functions that kata-vfio publishes and that are on VFIO drivers without a record, by address.
func (m *Maintainer) orphans(snap *device.Snapshot) []pci.Address {
	n := m.order.Planning.WithOwners(snap)
	var orphans []pci.Address
	for i := range snap.Functions {
		f := &snap.Functions[i]
		_, held := n.Owners[f.Address]
		if !held && device.IsVFIO(f.Driver) && n.Selection.Choice(f.Address).Ours {
			orphans = append(orphans, f.Address)
		}
	}
	return orphans
}

// orphanRecord returns the record for the return of an orphan. Recover completes an interrupted return, as it does for
// any claim.
func orphanRecord(a pci.Address) *journal.Record {
	return &journal.Record{Kind: journal.Orphan, Plan: plan.Plan{
		Claim: plan.Ref{UID: journal.OrphanID(a)}, Functions: []plan.Function{{Address: a}},
	}}
}

// retryOrphans tries again to return orphans whose return failed before. They have a record since then.
func (m *Maintainer) retryOrphans(ctx context.Context) (all []Orphan) {
	records, _ := m.order.Effects.Journal.List() // a record that can't be read is left alone
	for _, rec := range records {
		if !rec.IsOrphan() || len(rec.Plan.Functions) != 1 {
			continue
		}
		fn := &rec.Plan.Functions[0]
		s := Orphan{Address: fn.Address, GivenBack: fn.Original.Driver}
		if err := m.retryOrphan(ctx, rec.ID()); err != nil {
			s = Orphan{Address: fn.Address, Err: fmt.Errorf("orphan %s: %w", fn.Address, err)}
		}
		all = append(all, s)
	}
	return all
}

func (m *Maintainer) retryOrphan(ctx context.Context, id string) error {
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
	work := rec.Clone()
	return m.order.TakeOff(ctx, work)
}

// giveBackOrphan returns one orphan. It looks at the function again under the locks of its group, which every claim of
// the function holds until the claim has its record.
func (m *Maintainer) giveBackOrphan(ctx context.Context, a pci.Address) (*Orphan, error) {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	rec := orphanRecord(a)
	release, err := m.order.Effects.LockClaim(ctx, rec.Plan.Claim)
	if err != nil {
		return nil, err
	}
	defer release()
	snap, unlock, err := m.order.Effects.LockRecord(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer unlock()
	n := m.order.Planning.WithOwners(snap)
	f, ok := snap.Function(a)
	if _, held := n.Owners[a]; held || !ok || !device.IsVFIO(f.Driver) || f.Group == nil {
		return nil, nil // the function has changed meanwhile
	}
	rec.Plan.Functions[0].Identity = snap.Identify(f)
	if nodeconfig.Select(m.order.Effects.Node, snap).Choice(a).Policy == v1alpha1.PolicyBound {
		return nil, nil
	}
	orphan := &Orphan{Address: a}
	origin, why, err := m.findOrigin(ctx, snap, f, n.Damaged)
	if err != nil || why != "" {
		orphan.Why = why
		return orphan, err
	}
	lost, why, err := m.claimsWithoutRecord(ctx, f)
	if err != nil || why != "" {
		orphan.Why = why
		return orphan, err
	}
	// The ends are written before VFs are left out: the tenancies of a VF have ended too, even if the VF can't be
	// returned.
	if err := m.endWithoutRecord(ctx, snap, lost); err != nil {
		return nil, err
	}
	if f.VF != nil {
		orphan.Why = fmt.Sprintf("its claim's record is lost, so the VF's former settings on PF %s and its addresses from a pool are unknown: set MAC, VLAN, "+
			"trust and spoof check as they should be, free its addresses, and bind it to %s", f.VF.PF, origin)
		return orphan, nil
	}
	if orphan.Why, err = m.resetOrphan(ctx, n, f, origin); err != nil || orphan.Why != "" {
		return orphan, err
	}
	orphan.GivenBack = origin
	return orphan, m.restoreOrphan(ctx, snap, rec, f, origin)
}

// findOrigin returns the driver from which kata-vfio took an orphan. If that is uncertain, or if something may need the
// function on VFIO, it returns the reason.
func (m *Maintainer) findOrigin(ctx context.Context, snap *device.Snapshot, f *device.Function, damagedRecord string) (driver, why string, err error) {
	if damagedRecord != "" {
		return "", "record " + damagedRecord + " can't be read and may describe this device", nil
	}
	err = m.order.Effects.Unheld(ctx, snap, plan.Ref{UID: journal.OrphanID(f.Address)}, []pci.Address{f.Address})
	if effects.IsUse(err) {
		return "", effects.OneLine(err), nil
	}
	if err != nil || m.order.Effects.Ledger == nil {
		return "", "nothing shows what bound it", err
	}
	last, err := m.order.Effects.Ledger.Last(ctx, f.Address, ledger.Bind, ledger.Quarantine, ledger.Release)
	if err != nil {
		return "", "", err
	}
	switch {
	case last == nil:
		return "", "the ledger has no binding of this device since the node booted: it was bound by hand, driverctl or udev", nil
	case last.Type == ledger.Quarantine:
		return "", "the ledger says that the device is quarantined, and its record is missing", nil
	}
	for _, d := range last.Devices {
		// If the function is on another driver than the event says, somebody has bound it since.
		known := last.Type == ledger.Bind && d.DriverBefore != nil && d.DriverAfter != nil
		if d.Address == f.Address && known && *d.DriverAfter == f.Driver && *d.DriverBefore != "" && !device.IsVFIO(*d.DriverBefore) {
			return *d.DriverBefore, "", nil
		}
	}
	return "", "the last event of this device in the ledger does not say which driver it came from", nil
}

// restoreOrphan marks the function, writes a record that says what to undo, and undoes it.
func (m *Maintainer) restoreOrphan(ctx context.Context, snap *device.Snapshot, rec *journal.Record, f *device.Function, origin string) error {
	mark := journal.ResetMark{Address: f.Address, Identity: snap.Identify(f), Why: recordLost, Since: time.Now().UTC().Format(time.RFC3339)}
	if err := m.order.Effects.Journal.MarkNeedsReset(ctx, mark); err != nil {
		return err
	}
	now := plan.Binding{Driver: f.Driver, Override: f.DriverOverride}
	rec.BootID = snap.Host.BootID
	rec.Plan.Devices, rec.Plan.Steps = []plan.Device{}, []plan.Step{}
	rec.Plan.Functions[0] = plan.Function{
		Address: f.Address, Vendor: f.Vendor, Device: f.Device, Identity: snap.Identify(f), Group: *f.Group, Role: plan.RoleDevice,
		Original: plan.Binding{Driver: origin}, Target: now,
	}
	// Recover undoes a record in state Preparing, so a crash from here on ends in the same undo.
	if err := m.order.Effects.Save(rec, journal.Preparing, "no record explains why the device was on "+f.Driver); err != nil {
		return err
	}
	err := m.order.Undo(ctx, rec, fmt.Errorf("the device was on %s, and no record explains why", f.Driver))
	if err != nil {
		return errors.Join(err, m.order.Effects.Save(rec, journal.Preparing, effects.OneLine(err)))
	}
	return nil
}

// resetOrphan resets an orphan, or returns the reason why that is impossible. It writes no record. After a crash, the
// next look resets the orphan again.
func (m *Maintainer) resetOrphan(ctx context.Context, n plan.Node, f *device.Function, origin string) (why string, err error) {
	rec := orphanRecord(f.Address)
	for _, r := range isolation.Resets(n.Snapshot, f) {
		if !areOrphans(n, f, r.Set) {
			continue
		}
		if err := m.order.Effects.Unheld(ctx, n.Snapshot, rec.Plan.Claim, r.Set); err != nil {
			return "", err
		}
		rec.Plan.Functions = identified(n.Snapshot, r.Set)
		if rec.Baseline, err = m.order.Effects.Executor.Fingerprints(r.Set); err != nil {
			return "", err
		}
		_, result := m.order.Effects.Reset(ctx, rec, r)
		return "", result.Err
	}
	return fmt.Sprintf("the device can't be reset without functions in use, and a host driver must not get it before a reset: restart the node, or "+
		"bind the device to %s if no tenant had it", origin), nil
}

// identified returns functions of a snapshot as those of a record.
func identified(snap *device.Snapshot, addrs []pci.Address) []plan.Function {
	fns := make([]plan.Function, len(addrs))
	for i, a := range addrs {
		fns[i].Address = a
		if f, ok := snap.Function(a); ok {
			fns[i].Identity = snap.Identify(f)
		}
	}
	return fns
}

// areOrphans reports whether all functions of a reset's set are orphans of one IOMMU group,
// whose lock the caller has.
func areOrphans(n plan.Node, f *device.Function, set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool {
		other, ok := n.Snapshot.Function(a)
		_, held := n.Owners[a]
		return !ok || held || !device.IsVFIO(other.Driver) || other.Group == nil || *other.Group != *f.Group
	})
}

// A claim whose record is lost would have no end: it can't be unprepared, and the ledger would always name its tenant
// as the holder. So its end is written when its functions are found as orphans and no process has any of them open.

// claimsWithoutRecord returns the tenancies that had an orphan and that have neither an end in the ledger nor a record.
// Each is the list of its events from its Prepare on. If a process still has a function of such a tenancy open,
// claimsWithoutRecord returns the reason.
func (m *Maintainer) claimsWithoutRecord(ctx context.Context, f *device.Function) (lost [][]ledger.Event, why string, err error) {
	ids := []string{boundID(f)}
	last, err := m.order.Effects.Ledger.Last(ctx, f.Address, ledger.Prepare)
	if err != nil {
		return nil, "", err
	}
	if last != nil && last.Claim != nil && last.Claim.UID != ids[0] {
		ids = append(ids, last.Claim.UID)
	}
	for _, id := range ids {
		events, err := m.claimWithoutRecord(ctx, id)
		if err != nil {
			return nil, "", err
		}
		if len(events) == 0 {
			continue
		}
		if err := m.allUnheld(ctx, id, listAddresses(&events[0])); effects.IsUse(err) {
			return nil, effects.OneLine(err), nil
		} else if err != nil {
			return nil, "", err
		}
		lost = append(lost, events)
	}
	return lost, "", nil
}

// claimWithoutRecord returns the events of a claim that has neither a record nor an end.
func (m *Maintainer) claimWithoutRecord(ctx context.Context, uid string) ([]ledger.Event, error) {
	if rec, err := m.order.Effects.Journal.Load(uid); err != nil || rec != nil {
		return nil, err
	}
	events, err := m.order.Effects.Ledger.Tenancy(ctx, uid)
	if slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Type == ledger.Unprepare }) {
		return nil, err
	}
	return events, err
}

// allUnheld is [effects.Set.Unheld], by a fresh look, for those of the functions that are
// on VFIO.
func (m *Maintainer) allUnheld(ctx context.Context, uid string, addrs []pci.Address) error {
	ref := plan.Ref{UID: uid}
	snap, err := m.order.Effects.Refresh(ctx, ref, addrs)
	if err != nil {
		return err
	}
	return m.order.Effects.Unheld(ctx, snap, ref, effects.OnVFIO(snap, addrs))
}

// endWithoutRecord marks the functions of lost claims, and writes the claims' ends.
func (m *Maintainer) endWithoutRecord(ctx context.Context, snap *device.Snapshot, lost [][]ledger.Event) error {
	for _, events := range lost {
		uid := events[0].Claim.UID
		for _, a := range listAddresses(&events[0]) {
			mark := journal.ResetMark{Address: a, Claim: uid, Why: recordLost, Since: time.Now().UTC().Format(time.RFC3339)}
			if f, ok := snap.Function(a); ok {
				mark.Identity = snap.Identify(f)
			}
			// The mark is written first. A crash after it costs one more reset, and a crash before it changes nothing.
			if err := m.order.Effects.Journal.MarkNeedsReset(ctx, mark); err != nil {
				return err
			}
		}
		// The event has only the claim's UID, because the names in the ledger may be pseudonyms.
		if err := m.order.Effects.Record(ctx, plan.Ref{UID: uid}, lastTenancy(events)...); err != nil {
			return err
		}
	}
	return nil
}

const recordLost = "its claim's record was lost"

// lastTenancy returns the events that end a tenancy: neither the VM nor the claim has the devices any more.
func lastTenancy(events []ledger.Event) []ledger.Event {
	var end []ledger.Event
	if last := effects.FindLast(events, ledger.Open, ledger.Close); last != nil && last.Type == ledger.Open {
		end = append(end, ledger.Event{Type: ledger.Close, Devices: effects.DevicesNamed(&events[0]), VM: last.VM, Late: true, Reason: recordLost})
	}
	return append(end, ledger.Event{
		Type: ledger.Unprepare, Devices: effects.DevicesNamed(&events[0]), Codes: []string{ledger.CodeUnproven}, Late: true, Reason: recordLost,
	})
}

func listAddresses(e *ledger.Event) []pci.Address {
	addrs := make([]pci.Address, len(e.Devices))
	for i := range e.Devices {
		addrs[i] = e.Devices[i].Address
	}
	return addrs
}
