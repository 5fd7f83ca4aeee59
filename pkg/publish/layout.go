package publish

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// layout says which functions belong together by the node's hardware alone.
// What of them is ours or allocated doesn't matter, so that a device doesn't
// move to another pool when a config or a neighbour changes.
type layout struct {
	snapshot *device.Snapshot
	// units are sets of functions that go to one tenant together: those of one
	// IOMMU group, and a GPU with its companions.
	units sets
	// neighbours are sets of functions that must stand in one pool: units, and
	// PFs with their VFs. Counters can't be shared across pools.
	neighbours sets
	// inNodePool holds the neighbours that stand in the node's pool, by the
	// set's first address.
	inNodePool map[pci.Address]bool
	// firstPF holds the lowest PF of the others.
	firstPF map[pci.Address]pci.Address
}

func newLayout(s *device.Snapshot) *layout {
	l := &layout{
		snapshot: s, units: sets{}, neighbours: sets{},
		inNodePool: map[pci.Address]bool{}, firstPF: map[pci.Address]pci.Address{},
	}
	for i := range s.Functions {
		l.join(&s.Functions[i])
	}
	for i := range s.Functions {
		l.place(&s.Functions[i])
	}
	return l
}

// join enters f into the sets.
func (l *layout) join(f *device.Function) {
	if f.IsBridge() {
		return
	}
	if g, ok := l.snapshot.GroupOf(f); ok {
		for _, mate := range g.Members {
			if m, ok := l.snapshot.Function(mate); ok && !m.IsBridge() {
				l.bind(f.Address, mate)
				break // the mates that follow join the first one themselves
			}
		}
	}
	for _, c := range l.snapshot.Companions(f) {
		l.bind(f.Address, c.Address)
	}
	if f.VF != nil {
		l.neighbours.join(f.Address, f.VF.PF)
	}
}

// bind makes two functions one unit.
func (l *layout) bind(a, b pci.Address) {
	l.units.join(a, b)
	l.neighbours.join(a, b)
}

// place notes what f says about its neighbours' pool.
func (l *layout) place(f *device.Function) {
	if f.IsBridge() {
		return
	}
	set := l.neighbours.find(f.Address)
	pf := f.Address
	switch {
	case f.VF != nil:
		pf = f.VF.PF
	case !hasPool(f):
		l.inNodePool[set] = true
		return
	}
	if first, ok := l.firstPF[set]; !ok || pf.Compare(first) < 0 {
		l.firstPF[set] = pf
	}
}

// hasPool reports whether f has a pool of its own: a NIC, or another function
// with SR-IOV. GPUs stand in the node's pool, their VFs with them.
func hasPool(f *device.Function) bool {
	return f.Type == device.PFType || f.Type != device.GPU && f.PF != nil && f.PF.TotalVFs > 0
}

// pool returns the name of the pool that the function at addr stands in.
func (l *layout) pool(node string, addr pci.Address) string {
	set := l.neighbours.find(addr)
	pf, ok := l.firstPF[set]
	if l.inNodePool[set] || !ok {
		return node
	}
	return node + pfPool + pf.Label()
}

// pfPool stands between node and PF in the name of a PF's pool.
const pfPool = "/pf-"

// sets is a partition of addresses: each maps to another of its set, and the
// lowest of a set to none.
type sets map[pci.Address]pci.Address

// find returns the lowest address of a's set.
func (s sets) find(a pci.Address) pci.Address {
	for {
		up, ok := s[a]
		if !ok {
			return a
		}
		if further, ok := s[up]; ok {
			s[a] = further
		}
		a = up
	}
}

// join makes the sets of a and b one.
func (s sets) join(a, b pci.Address) {
	a, b = s.find(a), s.find(b)
	switch c := a.Compare(b); {
	case c < 0:
		s[b] = a
	case c > 0:
		s[a] = b
	}
}
