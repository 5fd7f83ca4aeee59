package sysfstest

import (
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// firstOwnGroup is the number of the first group that the test did not number.
const firstOwnGroup = 100

// A group is an IOMMU group.
type group struct {
	number   int
	kind     string
	reserved []string
	members  []*function
	// drivers counts the members that VFIO drivers have.
	drivers int
	// noIOMMU is set for a group that VFIO made up.
	noIOMMU bool
}

func (g *group) dir() string {
	return path.Join("sys/kernel/iommu_groups", strconv.Itoa(g.number))
}

// GroupOf returns the number of the function's IOMMU group, false for none.
func (k *Kernel) GroupOf(a pci.Address) (int, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	if f == nil || f.group == nil {
		return 0, false
	}
	return f.group.number, true
}

// SetGroupType sets the type of a group's default domain: "DMA", "DMA-FQ",
// "identity".
func (k *Kernel) SetGroupType(number int, kind string) {
	k.changeGroup(number, func(g *group) { g.kind = kind })
}

// SetReserved sets a group's reserved regions, one line for each:
// "0x00000000fee00000 0x00000000feefffff msi".
func (k *Kernel) SetReserved(number int, regions ...string) {
	k.changeGroup(number, func(g *group) { g.reserved = regions })
}

func (k *Kernel) changeGroup(number int, change func(*group)) {
	k.build(func() {
		g := k.groups[number]
		if g == nil {
			k.wrong("change group %d: there is none", number)
			return
		}
		change(g)
		k.showGroup(g)
	})
}

// join enters f into its group, which is made if need be. Callers hold mu.
func (k *Kernel) join(f *function) {
	if k.host.noIOMMU || f.Class.Sub() == classIOMMU {
		return
	}
	n := f.Group
	if n == 0 {
		n = k.freeGroup()
	}
	k.enter(f, n)
	k.link(path.Join(f.dir, "iommu"), k.host.iommu)
	k.link(path.Join(k.host.iommu, "devices", f.Address.String()), f.dir)
}

// enter puts f into the group with the number. Callers hold mu.
func (k *Kernel) enter(f *function, number int) {
	g := k.groups[number]
	if g == nil {
		g = &group{number: number, kind: "DMA", reserved: []string{k.host.msi}}
		k.groups[number] = g
		k.mkdir(path.Join(g.dir(), "devices"))
		k.showGroup(g)
	}
	g.members = append(g.members, f)
	f.group = g
	k.link(path.Join(g.dir(), "devices", f.Address.String()), f.dir)
	k.link(path.Join(f.dir, "iommu_group"), g.dir())
}

// showGroup writes a group's attributes. Callers hold mu.
func (k *Kernel) showGroup(g *group) {
	k.put(path.Join(g.dir(), "type"), g.kind+"\n", readWrite)
	text := ""
	if len(g.reserved) > 0 {
		text = lines(g.reserved...)
	}
	k.put(path.Join(g.dir(), "reserved_regions"), text, readOnly)
	if g.noIOMMU {
		k.put(path.Join(g.dir(), "name"), "vfio-noiommu\n", readOnly)
	}
}

// freeGroup returns the lowest number from firstOwnGroup up that no group has.
// Callers hold mu.
func (k *Kernel) freeGroup() int {
	n := max(k.host.nextGroup, firstOwnGroup)
	for k.groups[n] != nil {
		n++
	}
	k.host.nextGroup = n + 1
	return n
}

// leave takes f out of its group, and the group away with its last member.
// Callers hold mu.
func (k *Kernel) leave(f *function) {
	g := f.group
	if g == nil {
		return
	}
	f.group = nil
	g.members = slices.DeleteFunc(g.members, func(m *function) bool { return m == f })
	k.remove(path.Join(k.host.iommu, "devices", f.Address.String()))
	k.remove(path.Join(f.dir, "iommu"))
	k.remove(path.Join(f.dir, "iommu_group"))
	k.remove(path.Join(g.dir(), "devices", f.Address.String()))
	if len(g.members) == 0 {
		delete(k.groups, g.number)
		k.remove(g.dir())
	}
}

// owned reports whether a VFIO user owns the group's DMA. Callers hold mu.
func (k *Kernel) owned(g *group) bool {
	if g == nil {
		return false
	}
	for _, h := range k.holders {
		if h.group == g {
			return true
		}
	}
	return false
}

// notViable returns what keeps a group from being held: a member on a driver
// that does its own DMA. Callers hold mu.
func (g *group) notViable() error {
	for _, f := range g.members {
		if f.driver != nil && !f.driver.managesDMA() {
			return fmt.Errorf("group %d is not viable: %s has driver %s", g.number, f.Address, f.driver.name)
		}
	}
	return nil
}
