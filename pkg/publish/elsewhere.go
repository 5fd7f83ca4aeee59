package publish

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// elsewhere knows in which pools devices stay, by what they share with other devices: their unit, and a PF with its VFs. Counters can't be
// shared across pools. So a device that shares something with a staying device of another pool is not offered.
type elsewhere struct {
	layout   *device.Layout
	units    poolIndex
	pfs, vfs poolIndex // by the PF
}

// poolIndex maps a key to the pools that contain something of the key. There are several pools for a key if claims hold devices that did
// not share anything when they were allocated.
type poolIndex map[pci.Address][]string

func (p poolIndex) add(key pci.Address, pool string) { p[key] = append(p[key], pool) }

// other reports whether a pool other than this one contains something of the key.
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

// shares reports whether e shares a unit, or a PF, with a device that stays in another pool.
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

// formerUnits returns the units of a device by the counters that it has consumed. sysfs no longer has the IOMMU group of a removed
// function, but the function gets the same group again if it returns while its claim exists.
func (n *Node) formerUnits(e *entry) []pci.Address {
	var all []pci.Address
	for _, c := range n.before(e, unitSet) {
		if unit, err := pci.ParseLabel(strings.TrimPrefix(c.CounterSet, unitSet)); err == nil {
			all = append(all, unit)
		}
	}
	return all
}

// formerPFs returns the PFs to which the removed VFs of a device may belong: the PF that the counters or the pool's name tell, or else all
// PFs that the VF's address allows.
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

// pfsBefore returns the PFs that may have had a VF at an address where no function is now. The addresses of VFs follow that of their PF, on
// the PF's bus or on buses behind it that no other card uses. So the candidates are the PFs on the highest bus that has a PF at or before
// the VF's address.
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
