package publish

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// lingering returns the entries of the lingering devices that are not among those
// that are published anyway.
func lingering(n *Node, published []*entry) []*entry {
	there := map[Allocated]bool{}
	for _, e := range published {
		there[Allocated{Pool: e.pool, Name: e.name}] = true
	}
	var all []*entry
	for _, a := range n.Lingering {
		if there[a] {
			continue
		}
		there[a] = true
		if e := allocated(n, a); e != nil {
			if e.withdrawn == "" {
				e.withdrawn = withdrawnMoved
			}
			all = append(all, e)
		}
	}
	return all
}

// lingers reports whether e is a lingering device that is not published yet.
func lingers(n *Node, published []*entry, e *entry) bool {
	return slices.Contains(n.Lingering, Allocated{Pool: e.pool, Name: e.name}) &&
		!slices.ContainsFunc(published, func(p *entry) bool { return p.pool == e.pool && p.name == e.name })
}

// elsewhere knows in which pools stand the devices that stay where they are, by what
// they share with others: their unit, and a PF with its VFs. Counters can't be shared
// across pools, so that nothing that shares with one of them is offered in another.
type elsewhere struct {
	layout   *device.Layout
	units    map[pci.Address]string
	pfs, vfs map[pci.Address]string // by the PF
}

func newElsewhere(l *device.Layout, staying []*entry) *elsewhere {
	all := &elsewhere{layout: l, units: map[pci.Address]string{}, pfs: map[pci.Address]string{}, vfs: map[pci.Address]string{}}
	for _, e := range staying {
		for _, p := range e.parts() {
			all.units[l.Unit(p.addr)] = e.pool
			if p.f != nil && p.f.VF != nil {
				all.vfs[p.f.VF.PF] = e.pool
			} else {
				all.pfs[p.addr] = e.pool
			}
		}
	}
	return all
}

// shares reports whether e shares with a device in another pool.
func (s *elsewhere) shares(e *entry) bool {
	for _, p := range e.parts() {
		if differs(s.units, s.layout.Unit(p.addr), e.pool) {
			return true
		}
		if p.f != nil && p.f.VF != nil {
			if differs(s.pfs, p.f.VF.PF, e.pool) {
				return true
			}
		} else if differs(s.vfs, p.addr, e.pool) {
			return true
		}
	}
	return false
}

// differs reports whether there is a pool by the key, and another than this.
func differs(pools map[pci.Address]string, key pci.Address, pool string) bool {
	other, ok := pools[key]
	return ok && other != pool
}
