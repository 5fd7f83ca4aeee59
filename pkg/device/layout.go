package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Layout has the sets of functions that belong together. It also has the resource pool in which each function is
// published, unless the node shares the function with another driver. It depends only on the hardware, and not on the
// node config or on claims, so that a device does not move to another pool when a config or a neighbor changes. It is
// immutable and valid for its snapshot.
type Layout struct {
	snapshot *Snapshot
	// units are sets of functions that go to one tenant together: those of one
	// IOMMU group, and a GPU with its companions.
	units sets
	// neighbors are sets of functions that must be in one pool: units, and PFs with their VFs. The reason is that
	// counters can't be shared across pools.
	neighbors sets
	// inNodePool holds the neighbors that are in the node's pool, by the set's first address.
	inNodePool map[pci.Address]bool
	// firstPF holds the lowest PF of each other set, by the set's first address.
	firstPF map[pci.Address]pci.Address
}

// NewLayout returns the layout of a snapshot. It looks at each function once.
func NewLayout(s *Snapshot) *Layout {
	l := &Layout{
		snapshot: s, units: sets{}, neighbors: sets{},
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
func (l *Layout) join(f *Function) {
	if f.IsBridge() {
		return
	}
	if g, ok := l.snapshot.GroupWith(f); ok {
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
		l.neighbors.join(f.Address, f.VF.PF)
	}
}

// bind makes two functions one unit.
func (l *Layout) bind(a, b pci.Address) {
	l.units.join(a, b)
	l.neighbors.join(a, b)
}

// place records f's effect on the pool of its neighbors.
func (l *Layout) place(f *Function) {
	if f.IsBridge() {
		return
	}
	set := l.neighbors.find(f.Address)
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

// hasPool reports whether f has a pool of its own: a NIC, or another function with SR-IOV. GPUs are in the node's
// pool, and so are their VFs.
func hasPool(f *Function) bool {
	return f.Type == PFType || f.Type != GPU && f.PF != nil && f.PF.TotalVFs > 0
}

// Unit returns the lowest address of the functions that go to one tenant together
// with the one at addr: those of its IOMMU group, and a GPU's companions.
func (l *Layout) Unit(addr pci.Address) pci.Address { return l.units.find(addr) }

// Pool returns the name of the pool in which the node with the name publishes the
// function at addr.
func (l *Layout) Pool(node string, addr pci.Address) string {
	set := l.neighbors.find(addr)
	pf, ok := l.firstPF[set]
	if l.inNodePool[set] || !ok {
		return NodePool(node)
	}
	return NodePool(node) + pfPool + pf.Label()
}

// sets is a partition of addresses. Each address maps to another address of its set, except for the lowest one, which
// is not in the map.
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
