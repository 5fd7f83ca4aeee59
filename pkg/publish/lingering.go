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
	units    poolsOf
	pfs, vfs poolsOf // by the PF
}

// poolsOf has the pools in which something of each key stands: more than one, where claims
// hold devices that were apart when they were allocated.
type poolsOf map[pci.Address][]string

func (p poolsOf) add(key pci.Address, pool string) { p[key] = append(p[key], pool) }

// other reports whether something of the key stands in another pool than this.
func (p poolsOf) other(key pci.Address, pool string) bool {
	return slices.ContainsFunc(p[key], func(other string) bool { return other != pool })
}

func newElsewhere(l *device.Layout, staying []*entry) *elsewhere {
	all := &elsewhere{layout: l, units: poolsOf{}, pfs: poolsOf{}, vfs: poolsOf{}}
	for _, e := range staying {
		for _, p := range e.parts() {
			all.units.add(l.Unit(p.addr), e.pool)
			if p.f != nil && p.f.VF != nil {
				all.vfs.add(p.f.VF.PF, e.pool)
			} else {
				all.pfs.add(p.addr, e.pool)
			}
		}
	}
	return all
}

// shares reports whether e shares with a device in another pool.
func (s *elsewhere) shares(e *entry) bool {
	for _, p := range e.parts() {
		if s.units.other(s.layout.Unit(p.addr), e.pool) {
			return true
		}
		if p.f != nil && p.f.VF != nil {
			if s.pfs.other(p.f.VF.PF, e.pool) {
				return true
			}
		} else if s.vfs.other(p.addr, e.pool) {
			return true
		}
	}
	return false
}
