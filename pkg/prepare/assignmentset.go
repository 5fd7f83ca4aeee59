package prepare

import (
	"context"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// lockAssignmentSet takes the locks of all functions that the request takes along,
// and returns a fresh snapshot of them.
func (p *Preparer) lockAssignmentSet(ctx context.Context, req *claim.Request, snap *device.Snapshot) (fresh *device.Snapshot, release func(), err error) {
	return p.lockFresh(ctx, plan.RefOf(req), snap,
		func(s *device.Snapshot) []pci.Address { return assignmentSet(s, req) },
		func(s *device.Snapshot) []pci.Address { return surroundings(s, req) })
}

// lockFresh takes the locks of the functions that are wanted, and returns a snapshot
// in which all that decide on them are as they are with the locks held. Where that shows
// other groups than the locks were chosen by (a function was plugged in meanwhile), it
// starts over, and looks again at all that it has looked at: what the inventory knows may
// be older.
func (p *Preparer) lockFresh(ctx context.Context, ref plan.Ref, snap *device.Snapshot, wanted, deciding func(*device.Snapshot) []pci.Address) (fresh *device.Snapshot, release func(), err error) {
	var seen []pci.Address
	for {
		chosen := locks(snap, wanted(snap))
		if release, err = p.lock(ctx, ref, chosen); err != nil {
			return nil, nil, err
		}
		seen = distinct(append(seen, deciding(snap)...))
		if snap, err = p.refresh(ctx, ref, seen); err != nil {
			release()
			return nil, nil, err
		}
		if slices.Equal(chosen, locks(snap, wanted(snap))) {
			return snap, release, nil
		}
		release()
	}
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
