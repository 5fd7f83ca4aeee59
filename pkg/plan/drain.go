package plan

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DrainSet returns the functions that go out of use with f, by address: what a
// claim of it would take along, and what a claim that would take it along takes.
// Of a PF that is its VFs, too. It says of one what [DrainOf] says of all.
func DrainSet(s *device.Snapshot, f *device.Function) []*device.Function {
	all := isolation.AssignmentSet(s, f)
	named := map[pci.Address]bool{f.Address: true}
	for i := range s.Functions {
		other := &s.Functions[i]
		if _, ok := takesNamed(s, other, named); ok && !other.IsBridge() {
			all = append(all, isolation.AssignmentSet(s, other)...)
		}
	}
	slices.SortFunc(all, func(a, b *device.Function) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(all, func(a, b *device.Function) bool { return a.Address == b.Address })
}

// DrainOf returns the address on whose account no claim gets f, among those that an
// operator has named: its own, its PF's, that of one that goes with it, or that of one
// that goes with a device which would take f along: a claim of f would keep that from
// its driver.
func DrainOf[T any](s *device.Snapshot, f *device.Function, named map[pci.Address]T) (pci.Address, bool) {
	if len(named) == 0 {
		return pci.Address{}, false
	}
	if a, ok := takesNamed(s, f, named); ok {
		return a, true
	}
	for _, other := range dependents(s, f) {
		if a, ok := takesNamed(s, other, named); ok {
			return a, true
		}
	}
	return pci.Address{}, false
}

// takesNamed returns which of the named functions a claim of f would take along, or
// have a VF of.
func takesNamed[T any](s *device.Snapshot, f *device.Function, named map[pci.Address]T) (pci.Address, bool) {
	if _, ok := named[f.Address]; ok {
		return f.Address, true
	}
	for _, t := range isolation.AssignmentSet(s, f) {
		if _, ok := named[t.Address]; ok {
			return t.Address, true
		}
		if t.VF == nil {
			continue
		}
		if _, ok := named[t.VF.PF]; ok {
			return t.VF.PF, true
		}
	}
	return pci.Address{}, false
}

// dependents returns the functions whose claims would take f along: of its group, and
// those that a function of that is a companion of.
func dependents(s *device.Snapshot, f *device.Function) []*device.Function {
	var all []*device.Function
	for _, member := range append([]*device.Function{f}, members(s, f)...) {
		for _, other := range s.Slot(member) { // itself among them
			if slices.ContainsFunc(isolation.AssignmentSet(s, other), func(t *device.Function) bool { return t.Address == f.Address }) {
				all = append(all, other)
			}
		}
	}
	return all
}

func members(s *device.Snapshot, f *device.Function) []*device.Function {
	g, ok := s.GroupOf(f)
	if !ok {
		return nil
	}
	return s.Members(g)
}

// drained refuses what an operator takes out of use. A taint keeps such a device
// from claims, but a tenant may tolerate taints.
func (c *candidate) drained() *Refusal {
	a, ok := DrainOf(c.node.Snapshot, c.f, c.node.Drained)
	if !ok {
		return nil
	}
	r := &Refusal{
		Code: Drained, Driver: c.f.Driver,
		Text: fmt.Sprintf("%s is taken out of use: %s", a, c.node.Drained[a]),
		Fix:  fmt.Sprintf("claim another device, or run `kata-vfio-plugin undrain %s` on the node", a),
	}
	if a != c.f.Address {
		r.Culprit = new(a)
	}
	return r
}
