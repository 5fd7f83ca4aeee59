package effects

import (
	"context"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Locking takes the locks of claims, IOMMU groups and PFs.
type Locking struct {
	inventory Inventory
	executor  Executor
	locks     Locks
	observe   Observer
}

// LockClaim takes a claim's own lock.
func (l *Locking) LockClaim(ctx context.Context, claim plan.Ref) (release func(), err error) {
	return l.Lock(ctx, claim, []Lock{{Name: ClaimLocks + claim.UID, Transient: true}})
}

// Lock takes the locks and counts the time as waiting.
func (l *Locking) Lock(ctx context.Context, claim plan.Ref, locks []Lock) (release func(), err error) {
	err = l.observe.Timed(claim, PhaseWait, func() error {
		release, err = l.locks.Acquire(ctx, locks...)
		return err
	})
	return release, err
}

// LockRequest takes the locks of all functions that the request takes along,
// and returns a fresh snapshot of them.
func (l *Locking) LockRequest(ctx context.Context, req *claim.Request, snap *device.Snapshot) (fresh *device.Snapshot, release func(), err error) {
	return l.lockFresh(ctx, plan.RefOf(req), snap, l.inventory.Refresh,
		func(s *device.Snapshot) []pci.Address { return assignmentSet(s, req) },
		func(s *device.Snapshot) []pci.Address { return surroundings(s, req) })
}

// LockRecord takes the locks of a record's functions, and returns a fresh
// snapshot of them. A reset that an earlier call was cut off from is waited for:
// while it is in the kernel, the functions can't be looked at.
func (l *Locking) LockRecord(ctx context.Context, rec *journal.Record) (snap *device.Snapshot, release func(), err error) {
	claim, addrs := rec.Plan.Claim, rec.Plan.Addresses()
	err = l.observe.Timed(claim, PhaseWait, func() error { return l.executor.AwaitResets(ctx, addrs) })
	if err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w; the next try continues from here", claim, err)
	}
	if snap, err = l.inventory.Snapshot(ctx); err != nil {
		return nil, nil, err
	}
	theirs := func(*device.Snapshot) []pci.Address { return slices.Clone(addrs) }
	return l.lockFresh(ctx, claim, snap, l.inventory.RefreshFunctions, theirs, theirs)
}

// lockFresh takes the locks of the wanted functions, and returns a snapshot in which everything that decides on them was
// read with the locks held. If it shows other groups than those the locks were chosen by, because a function was plugged
// in, lockFresh starts over and reads everything again, because the inventory may be older.
func (l *Locking) lockFresh(
	ctx context.Context, ref plan.Ref, snap *device.Snapshot, refresh refresh, wanted, deciding func(*device.Snapshot) []pci.Address,
) (fresh *device.Snapshot, release func(), err error) {
	var seen []pci.Address
	for {
		chosen := locks(snap, wanted(snap))
		if release, err = l.Lock(ctx, ref, chosen); err != nil {
			return nil, nil, err
		}
		seen = distinct(append(seen, deciding(snap)...))
		if snap, err = l.timed(ctx, ref, refresh, seen); err != nil {
			release()
			return nil, nil, err
		}
		if slices.Equal(chosen, locks(snap, wanted(snap))) {
			return snap, release, nil
		}
		release()
	}
}

// Refresh returns a snapshot in which the functions at addrs are as they are now.
func (l *Locking) Refresh(ctx context.Context, ref plan.Ref, addrs []pci.Address) (snap *device.Snapshot, err error) {
	return l.timed(ctx, ref, l.inventory.Refresh, addrs)
}

// refresh is one of the ways to refresh of an [Inventory].
type refresh func(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error)

func (l *Locking) timed(ctx context.Context, ref plan.Ref, refresh refresh, addrs []pci.Address) (snap *device.Snapshot, err error) {
	err = l.observe.Timed(ref, PhaseScan, func() error {
		snap, err = refresh(ctx, addrs)
		return err
	})
	return snap, err
}

// locks returns the locks of functions: their IOMMU groups, and their PFs,
// which a PF has to itself and its VFs share.
func locks(snap *device.Snapshot, addrs []pci.Address) []Lock {
	var locks []Lock
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		if f.Group != nil {
			locks = append(locks, Lock{Name: fmt.Sprintf("group-%d", *f.Group), Kept: true})
		}
		switch {
		case f.VF != nil:
			locks = append(locks, Lock{Name: "pf-" + f.VF.PF.Label(), Shared: true, Kept: true})
		case f.PF != nil:
			locks = append(locks, Lock{Name: "pf-" + a.Label(), Kept: true})
		}
	}
	return locks
}

// assignmentSet returns the addresses of all functions that a request's devices
// take along, themselves included whether they are there or not.
func assignmentSet(snap *device.Snapshot, req *claim.Request) []pci.Address {
	var addrs []pci.Address
	for _, d := range req.Devices {
		addrs = append(addrs, d.Address)
		if f, ok := snap.Function(d.Address); ok {
			for _, t := range isolation.AssignmentSet(snap, f) {
				addrs = append(addrs, t.Address)
			}
		}
	}
	return distinct(addrs)
}

// surroundings returns the addresses of all functions that decide on a request: its
// assignment set, what may have come into the slots of its devices, and the ports above
// them, whose registers say what reaches the devices past the IOMMU.
func surroundings(snap *device.Snapshot, req *claim.Request) []pci.Address {
	addrs := assignmentSet(snap, req)
	for _, d := range req.Devices {
		f, ok := snap.Function(d.Address)
		if ok {
			addrs = append(addrs, f.Upstream...)
		}
		if ok && f.VF != nil {
			continue // VFs come and go with their PF
		}
		if ok {
			for _, mate := range snap.Slot(f) {
				addrs = append(addrs, mate.Address)
			}
		}
		for mate, n := d.Address, uint8(0); n < 8; n++ {
			mate.Function = n
			addrs = append(addrs, mate)
		}
	}
	return distinct(addrs)
}

// distinct sorts addresses and drops doubles.
func distinct(addrs []pci.Address) []pci.Address {
	slices.SortFunc(addrs, pci.Address.Compare)
	return slices.Compact(addrs)
}

// ClaimLocks begins the names of claims' locks, which are transient.
const ClaimLocks = "claim-"
