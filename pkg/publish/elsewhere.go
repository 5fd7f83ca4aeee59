package publish

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// elsewhere knows the pools of the devices that stay in place, by what they share with others: their unit, and a
// PF with its VFs. Counters can't be shared across pools, so a device that shares something with one of them is
// not offered in another pool.
type elsewhere struct {
	layout   *device.Layout
	units    poolIndex
	pfs, vfs poolIndex // by the PF
}

// poolIndex has the pools that contain something of each key: more than one, if claims hold devices that were apart
// when they were allocated.
type poolIndex map[pci.Address][]string

func (p poolIndex) add(key pci.Address, pool string) { p[key] = append(p[key], pool) }

// other reports whether another pool than this one contains something of the key.
func (p poolIndex) other(key pci.Address, pool string) bool {
	return slices.ContainsFunc(p[key], func(other string) bool { return other != pool })
}

func newElsewhere(n *Node, l *device.Layout, staying []*entry) *elsewhere {
	all := &elsewhere{layout: l, units: poolIndex{}, pfs: poolIndex{}, vfs: poolIndex{}}
	for _, e := range staying {
		for _, unit := range n.formerUnits(e) {
			all.units.add(unit, e.pool)
		}
		for _, pf := range n.formerPFs(e) {
			all.vfs.add(pf, e.pool)
		}
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

// formerUnits returns the units of a device by the counters that it has consumed. sysfs no longer tells the group of a function that is
// gone, and it comes back into the same one while its claim goes on.
func (n *Node) formerUnits(e *entry) []pci.Address {
	var all []pci.Address
	for _, c := range n.before(e, unitSet) {
		if unit, err := pci.ParseLabel(strings.TrimPrefix(c.CounterSet, unitSet)); err == nil {
			all = append(all, unit)
		}
	}
	return all
}

// formerPFs returns the PFs to which the VFs of a device that are gone may belong: the one that counters or the pool's name tell, or all
// that the address allows.
func (n *Node) formerPFs(e *entry) []pci.Address {
	if pf, ok := n.pf(e); ok && e.f == nil && pf != e.addr {
		return []pci.Address{pf}
	}
	switch {
	case e.vf != nil && e.vf.f == nil:
		return n.pfsBefore(e.vf.addr)
	case e.vf == nil && e.f == nil && e.kind == device.VFType:
		return n.pfsBefore(e.addr)
	}
	return nil
}

// pfsBefore returns the PFs that can have had a VF at an address where nothing is now. VFs come after their PF, on its bus or on buses
// behind it that no other card has, so these are the PFs on the last bus up to the VF's.
func (n *Node) pfsBefore(vf pci.Address) []pci.Address {
	var last []pci.Address
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.PF == nil || f.Address.Domain != vf.Domain || f.Address.Compare(vf) > 0 {
			continue
		}
		if len(last) > 0 && f.Address.Bus > last[0].Bus {
			last = nil
		}
		if len(last) == 0 || f.Address.Bus == last[0].Bus {
			last = append(last, f.Address)
		}
	}
	return last
}
