package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Orphan is a function of ours on a VFIO driver that no record explains.
type Orphan struct {
	Address pci.Address
	// GivenBack names the driver that it went back to; empty where it is where it was.
	GivenBack string
	// Why says why it was left alone; Err why it could not be given back, though it should
	// be: the next look tries again.
	Why string
	Err error
}

// SweepSpecs removes CDI specs of ours whose claims have no record here, and returns
// the claims' UIDs. It may be repeated.
func (p *Preparer) SweepSpecs(ctx context.Context) ([]string, error) {
	r := &Recovery{}
	err := p.sweepSpecs(ctx, r)
	return r.Specs, errors.Join(err, errors.Join(r.Unfinished...))
}

// GiveBackOrphans gives functions that no record explains back to their drivers, where
// the ledger tells that kata-vfio has bound them in this boot, and from which driver.
// All others are left alone, and so are those that policy "bound" wants where they
// are, and VFs, whose settings from before only the record knew. What is given back is
// reset first, since its last tenant may have armed it against the host's driver, and is
// marked: nobody has proven it clean. The claims that had it have their end in the
// ledger. It may be repeated, and goes on with what it could not do the last time.
func (p *Preparer) GiveBackOrphans(ctx context.Context) ([]Orphan, error) {
	all := p.retryOrphans(ctx)
	r := &Recovery{}
	if err := p.findOrphans(ctx, r); err != nil {
		return all, err
	}
	for _, a := range r.Orphans {
		s, err := p.giveBackOrphan(ctx, a)
		if err != nil {
			s = &Orphan{Address: a, Err: fmt.Errorf("stray %s: %w", a, err)}
		}
		if s != nil {
			all = append(all, *s)
		}
	}
	return all, nil
}

const orphanPrefix = "stray-"

// orphanID is the record's under which a stray goes back: a crash on the way is finished
// by Recover like that of any claim.
func orphanID(a pci.Address) string { return orphanPrefix + a.Label() }

// retryOrphans goes on with those whose way back has failed: they have a record since.
func (p *Preparer) retryOrphans(ctx context.Context) (all []Orphan) {
	records, _ := p.Journal.List() // one that can't be read is nobody's to go on with
	for _, rec := range records {
		if rec.Kind != journal.Claim || rec.Plan.Claim.Name != "" || !strings.HasPrefix(rec.ID(), orphanPrefix) || len(rec.Plan.Functions) != 1 {
			continue
		}
		fn := &rec.Plan.Functions[0]
		s := Orphan{Address: fn.Address, GivenBack: fn.Original.Driver}
		if err := p.retryOrphan(ctx, rec.ID()); err != nil {
			s = Orphan{Address: fn.Address, Err: fmt.Errorf("stray %s: %w", fn.Address, err)}
		}
		all = append(all, s)
	}
	return all
}

func (p *Preparer) retryOrphan(ctx context.Context, id string) error {
	ctx, cancel := p.inTime(ctx)
	defer cancel()
	_, err := p.Unprepare(ctx, id)
	return err
}

// giveBackOrphan looks again under the locks of the function's group, which every
// claim of it holds until it has its record.
func (p *Preparer) giveBackOrphan(ctx context.Context, a pci.Address) (*Orphan, error) {
	ctx, cancel := p.inTime(ctx)
	defer cancel()
	ref := plan.Ref{UID: orphanID(a)}
	release, err := p.lock(ctx, ref, []Lock{claimLock(ref.UID)})
	if err != nil {
		return nil, err
	}
	defer release()
	rec := &journal.Record{Kind: journal.Claim, Plan: plan.Plan{Claim: ref, Functions: []plan.Function{{Address: a}}}}
	snap, unlock, err := p.lockRecord(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer unlock()
	n := p.node(snap)
	f, ok := snap.Function(a)
	if _, held := n.Owners[a]; held || !ok || !device.IsVFIO(f.Driver) || f.Group == nil {
		return nil, nil // it has changed meanwhile
	}
	if nodeconfig.Select(p.Node, snap).Choice(a).Policy == v1alpha1.PolicyBound {
		return nil, nil
	}
	stray := &Orphan{Address: a}
	origin, why, err := p.originOf(ctx, snap, f, n.Damaged)
	if err != nil || why != "" {
		stray.Why = why
		return stray, err
	}
	lost, why, err := p.claimsWithoutRecord(ctx, f)
	if err != nil || why != "" {
		stray.Why = why
		return stray, err
	}
	if err := p.endWithoutRecord(ctx, lost); err != nil {
		return nil, err
	}
	if f.VF != nil {
		stray.Why = fmt.Sprintf("its claim's record is lost, and with it what PF %s imposed on this VF before, and whether it has addresses from a pool: "+
			"set MAC, VLAN, trust and spoof check as they should be, free its addresses, and bind it to %s", f.VF.PF, origin)
		return stray, nil
	}
	if stray.Why, err = p.resetOrphan(ctx, n, f, origin); err != nil || stray.Why != "" {
		return stray, err
	}
	stray.GivenBack = origin
	return stray, p.restoreOrphan(ctx, snap, rec, f, origin)
}

// originOf returns the driver from which kata-vfio took a stray, or why that, or that
// nobody needs it on VFIO, is not certain.
func (p *Preparer) originOf(ctx context.Context, snap *device.Snapshot, f *device.Function, damagedRecord string) (driver, why string, err error) {
	if damagedRecord != "" {
		return "", "record " + damagedRecord + " can't be read, and may be of it", nil
	}
	err = p.unheld(ctx, snap, plan.Ref{UID: orphanID(f.Address)}, []pci.Address{f.Address})
	if isUse(err) {
		return "", oneLine(err), nil
	}
	if err != nil || p.Ledger == nil {
		return "", "nothing says who bound it", err
	}
	last, err := p.Ledger.Last(ctx, f.Address, ledger.Bind, ledger.Quarantine, ledger.Release)
	if err != nil {
		return "", "", err
	}
	switch {
	case last == nil:
		return "", "the ledger tells of nobody who bound it since the node's start: it was bound by hand, or by driverctl or udev", nil
	case last.Type == ledger.Quarantine:
		return "", "the ledger says that it is quarantined, and its record is gone", nil
	}
	for _, d := range last.Devices {
		known := last.Type == ledger.Bind && d.DriverBefore != nil && d.DriverAfter != nil
		if d.Address == f.Address && known && *d.DriverAfter == f.Driver && *d.DriverBefore != "" && !device.IsVFIO(*d.DriverBefore) {
			return *d.DriverBefore, "", nil
		}
	}
	return "", "the ledger's last word of it does not say which driver it came from", nil
}

// isUse reports whether an error says that a process has a function, or that this
// can't be seen.
func isUse(err error) bool {
	_, used := errors.AsType[*InUseError](err)
	_, locked := errors.AsType[*LockedError](err)
	return used || locked
}

// restoreOrphan marks the function, writes a record of what there is to take back, and
// takes it back.
func (p *Preparer) restoreOrphan(ctx context.Context, snap *device.Snapshot, rec *journal.Record, f *device.Function, origin string) error {
	mark := journal.ResetMark{Address: f.Address, Why: recordLost, Since: time.Now().UTC().Format(time.RFC3339)}
	if err := p.Journal.MarkNeedsReset(mark); err != nil {
		return err
	}
	now := plan.Binding{Driver: f.Driver, Override: f.DriverOverride}
	rec.BootID = snap.Host.BootID
	rec.Plan.Devices, rec.Plan.Steps = []plan.Device{}, []plan.Step{}
	rec.Plan.Functions[0] = plan.Function{
		Address: f.Address, Vendor: f.Vendor, Device: f.Device, Group: *f.Group, Role: plan.RoleDevice,
		Original: plan.Binding{Driver: origin}, Target: now,
	}
	if err := p.save(rec, journal.Preparing, "no record explained why it was on "+f.Driver); err != nil {
		return err
	}
	err := p.undo(ctx, rec, fmt.Errorf("it was on %s, and no record said why", f.Driver))
	if err != nil {
		return errors.Join(err, p.save(rec, journal.Preparing, oneLine(err)))
	}
	return nil
}

// resetOrphan resets a stray, or says why that can't be done. A crash before or after leaves
// nothing behind: the next look resets it again.
func (p *Preparer) resetOrphan(ctx context.Context, n plan.Node, f *device.Function, origin string) (why string, err error) {
	ref := plan.Ref{UID: orphanID(f.Address)}
	for _, r := range isolation.Resets(n.Snapshot, f) {
		if !areOrphans(n, f, r.Set) {
			continue
		}
		if err := p.unheld(ctx, n.Snapshot, ref, r.Set); err != nil {
			return "", err
		}
		rec := &journal.Record{Kind: journal.Claim, Plan: plan.Plan{Claim: ref, Functions: []plan.Function{{Address: f.Address}}}}
		if rec.Baseline, err = p.Executor.Fingerprints(r.Set); err != nil {
			return "", err
		}
		_, err = p.reset(ctx, rec, r)
		return "", err
	}
	return fmt.Sprintf("it can't be reset without functions that others have, and a driver of the host must not get it as a tenant has left it: "+
		"restart the node, or bind it to %s if no tenant had it", origin), nil
}

// areOrphans reports whether all functions of a reset's set are strays of one IOMMU group,
// whose lock the caller has.
func areOrphans(n plan.Node, f *device.Function, set []pci.Address) bool {
	return !slices.ContainsFunc(set, func(a pci.Address) bool {
		other, ok := n.Snapshot.Function(a)
		_, held := n.Owners[a]
		return !ok || held || !device.IsVFIO(other.Driver) || other.Group == nil || *other.Group != *f.Group
	})
}
