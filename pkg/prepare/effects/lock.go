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

// LockClaim takes a claim's own lock.
func (set *Set) LockClaim(ctx context.Context, ref plan.Ref) (release func(), err error) {
	return set.Lock(ctx, ref, []Lock{{Name: ClaimLocks + ref.UID, Transient: true}})
}

// Lock takes the locks and counts the time as waiting.
func (set *Set) Lock(ctx context.Context, ref plan.Ref, locks []Lock) (release func(), err error) {
	err = set.Observe.Timed(ref, PhaseWait, func() error {
		release, err = set.Locks.Acquire(ctx, locks...)
		return err
	})
	return release, err
}

// LockRequest takes the locks of all functions in the request's assignment sets, and returns a snapshot in which these
// functions were read with the locks held.
func (set *Set) LockRequest(ctx context.Context, req *claim.Request, snap *device.Snapshot) (fresh *device.Snapshot, release func(), err error) {
	return set.lockFresh(ctx, plan.NewRef(req), snap, set.Inventory.Refresh,
		func(s *device.Snapshot) []pci.Address { return assignmentSet(s, req) },
		func(s *device.Snapshot) []pci.Address { return surroundings(s, req) })
}

// LockRecord takes the locks of a record's functions, and returns a fresh snapshot of them. It first waits for resets
// that an earlier call started: functions can't be read while they are reset in the kernel.
func (set *Set) LockRecord(ctx context.Context, rec *journal.Record) (snap *device.Snapshot, release func(), err error) {
	ref, addrs := rec.Plan.Claim, rec.Plan.Addresses()
	err = set.Observe.Timed(ref, PhaseWait, func() error { return set.Executor.AwaitResets(ctx, addrs) })
	if err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w; the next try continues from here", ref, err)
	}
	if snap, err = set.Inventory.Snapshot(ctx); err != nil {
		return nil, nil, err
	}
	theirs := func(*device.Snapshot) []pci.Address { return slices.Clone(addrs) }
	return set.lockFresh(ctx, ref, snap, set.Inventory.RefreshFunctions, theirs, theirs)
}

// lockFresh takes the locks of the wanted functions. It returns a snapshot in which everything that the decision
// depends on was read with the locks held. If that snapshot shows other groups, for example because a function was
// plugged in, the locks were the wrong ones, and lockFresh starts over.
func (set *Set) lockFresh(
	ctx context.Context, ref plan.Ref, snap *device.Snapshot, refresh refresh, wanted, deciding func(*device.Snapshot) []pci.Address,
) (fresh *device.Snapshot, release func(), err error) {
	var seen []pci.Address
	for {
		chosen := locks(snap, wanted(snap))
		if release, err = set.Lock(ctx, ref, chosen); err != nil {
			return nil, nil, err
		}
		// Functions of earlier rounds are read again, too, because a group changes both when a function leaves it and
		// when one joins it.
		seen = distinct(append(seen, deciding(snap)...))
		if snap, err = set.timed(ctx, ref, refresh, seen); err != nil {
			release()
			return nil, nil, err
		}
		// The names of the locks depend on groups and PFs, which can change until the locks are held.
		if slices.Equal(chosen, locks(snap, wanted(snap))) {
			return snap, release, nil
		}
		release()
	}
}

// Refresh returns a snapshot in which the functions at addrs are as they are now.
func (set *Set) Refresh(ctx context.Context, ref plan.Ref, addrs []pci.Address) (snap *device.Snapshot, err error) {
	return set.timed(ctx, ref, set.Inventory.Refresh, addrs)
}

// refresh is one of the ways to refresh of an [Inventory].
type refresh func(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error)

func (set *Set) timed(ctx context.Context, ref plan.Ref, refresh refresh, addrs []pci.Address) (snap *device.Snapshot, err error) {
	err = set.Observe.Timed(ref, PhaseScan, func() error {
		snap, err = refresh(ctx, addrs)
		return err
	})
	return snap, err
}

// locks returns the locks of functions: one for each IOMMU group, and one for each PF, which the PF takes exclusively
// and its VFs share.
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

// assignmentSet returns the addresses of a request's devices, even of missing ones, and of all functions that are
// assigned with them.
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

// surroundings returns the addresses of all functions that the decision on a request depends on: the functions of its
// assignment sets, functions that may have appeared in the slots of its devices, and the ports above its devices. The
// registers of these ports say what can reach the devices past the IOMMU.
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
			// Without ARI, a device has at most eight functions (a function number has 3 bits). Addresses at which no
			// function is known are read too, because a newly plugged function is found at such an address.
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

// ClaimLocks is the prefix of the names of claims' locks, which are transient.
const ClaimLocks = "claim-"
