package isolation

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// AssignmentSet returns every function that one tenant must have together with f: f
// itself, the members of its IOMMU group but bridges, and f's companions
// ([device.Snapshot.Companions]) with the members of their groups. The result
// is in order of address and holds each function once.
func AssignmentSet(s *device.Snapshot, f *device.Function) []*device.Function {
	taken := []*device.Function{f}
	for _, seed := range append(s.Companions(f), f) {
		taken = append(taken, seed)
		if g, ok := s.GroupOf(seed); ok {
			taken = append(taken, endpoints(s.Members(g))...)
		}
	}
	slices.SortFunc(taken, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(taken, func(a, b *device.Function) bool { return a.Address == b.Address })
}

func endpoints(members []*device.Function) []*device.Function {
	return slices.DeleteFunc(members, (*device.Function).IsBridge)
}

// addressesOf returns the addresses of functions.
func addressesOf(fns []*device.Function) []pci.Address {
	addrs := make([]pci.Address, len(fns))
	for i, f := range fns {
		addrs[i] = f.Address
	}
	return addrs
}
