package plan

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DrainSet returns the functions that are drained together with f, by address: the functions that a claim of f
// includes, the functions whose claims include f, and a PF's VFs. [Drains] applies the same rule to all functions.
func DrainSet(s *device.Snapshot, f *device.Function) []*device.Function {
	all := isolation.AssignmentSet(s, f)
	named := map[pci.Address]bool{f.Address: true}
	for i := range s.Functions {
		other := &s.Functions[i]
		// No claim is for a bridge.
		if set := isolation.AssignmentSet(s, other); namedIn(set, named) != nil && !other.IsBridge() {
			all = append(all, set...)
		}
	}
	slices.SortFunc(all, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(all, func(a, b *device.Function) bool { return a.Address == b.Address })
}

// Drains has the functions that no claim gets because of drained addresses, and for each the drained address.
type Drains map[pci.Address]pci.Address

// NewDrains returns the drains of a snapshot. named are the addresses that an operator named. A drain of an address
// concerns its function, the functions that are assigned with it, and a PF's VFs. It also concerns the functions that a
// claim of any of these would include, because that claim would keep them from their driver.
func NewDrains[T any](s *device.Snapshot, named map[pci.Address]T) Drains {
	return newDrains(isolation.NewJudger(s), s, named)
}

// newDrains is [NewDrains] with the judger of s. It looks at each set of functions once, because each of the hundreds of
// functions in an IOMMU group has the whole group as its set.
func newDrains[T any](k *isolation.Judger, s *device.Snapshot, named map[pci.Address]T) Drains {
	d := Drains{}
	if len(named) == 0 {
		return d
	}
	shared := map[*device.Function]*pci.Address{} // by the first function of the set
	var apart [][]*device.Function
	var because []pci.Address
	for i := range s.Functions {
		f := &s.Functions[i]
		set, whole := k.AssignmentSet(f)
		at, known := shared[set[0]]
		if !whole || !known {
			at = namedIn(set, named)
		}
		if whole {
			shared[set[0]] = at
		}
		if _, ok := named[f.Address]; ok {
			at = &f.Address
		}
		if at == nil {
			continue
		}
		d[f.Address] = *at
		if !whole { // each function of a whole set has found the address itself
			apart, because = append(apart, set), append(because, *at)
		}
	}
	for i, set := range apart {
		d.include(set, because[i])
	}
	return d
}

// include enters functions that a claim would include, unless they have a drained address already.
func (d Drains) include(set []*device.Function, because pci.Address) {
	for _, f := range set {
		if _, ok := d[f.Address]; !ok {
			d[f.Address] = because
		}
	}
}

// Find returns the drained address that keeps claims from f, and whether there is one. It is f's own if f is named.
func (d Drains) Find(f *device.Function) (pci.Address, bool) {
	a, ok := d[f.Address]
	return a, ok
}

// namedIn returns the first named address of a set of functions, nil if there is none. A VF also has its PF's.
func namedIn[T any](set []*device.Function, named map[pci.Address]T) *pci.Address {
	for _, t := range set {
		if _, ok := named[t.Address]; ok {
			return &t.Address
		}
		if t.VF == nil {
			continue
		}
		if _, ok := named[t.VF.PF]; ok {
			return &t.VF.PF
		}
	}
	return nil
}
