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
	// excluded is set while [Kernel.Exclude] has the group open.
	excluded bool
}

func (g *group) dir() string {
	return path.Join("sys/kernel/iommu_groups", strconv.Itoa(g.number))
}

// Group returns the number of the function's IOMMU group, false if there is none.
func (k *Kernel) Group(a pci.Address) (int, bool) {
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
		if f.driver != nil && !f.driver.managesDMA(f) {
			return fmt.Errorf("group %d is not viable: %s has driver %s", g.number, f.Address, f.driver.name)
		}
	}
	return nil
}

// IOMMU is the make of a node's IOMMU.
type IOMMU int

// Makes of IOMMUs; Intel's is the usual one.
const (
	IntelVTd IOMMU = iota
	AMDVi
	SMMUv3
)

// classIOMMU is the class of AMD's IOMMU, a PCI function that is in no group
// itself (base 08, subclass 06).
const classIOMMU = 0x0806

// shape is how an IOMMU looks in sysfs.
type shape struct {
	name, dir string
	// chips are the names of the node's interrupt chips.
	chips []string
	// files are its own attributes, by path below dir.
	files map[string]string
	// msi is a group's region for interrupts.
	msi string
}

// shape returns how the make looks: drivers/iommu/intel/iommu.c,
// amd/init.c and arm/arm-smmu-v3/arm-smmu-v3.c (iommu_device_sysfs_add), and the
// chips' prefixes as in package isolation.
func (kind IOMMU) shape() shape {
	const x86 = "0x00000000fee00000 0x00000000feefffff msi"
	switch kind {
	case IntelVTd: // below
	case AMDVi:
		return shape{
			name: "ivhd0", dir: "sys/devices/pci0000:00/0000:00:00.2/iommu/ivhd0",
			chips: []string{"IR-IO-APIC", "IR-PCI-MSI"}, msi: x86,
			files: map[string]string{"amd-iommu/cap": "190b640f\n", "amd-iommu/features": "246577efa2254afa:0\n"},
		}
	case SMMUv3:
		return shape{
			name: "smmu3.0x0000000040000000", dir: "sys/devices/platform/arm-smmu-v3.0.auto/iommu/smmu3.0x0000000040000000",
			chips: []string{"GICv3", "ITS-PCI-MSI"}, msi: "0x0000000008000000 0x00000000080fffff msi",
		}
	}
	return shape{
		name: "dmar0", dir: "sys/devices/virtual/iommu/dmar0",
		chips: []string{"IR-IO-APIC", "IR-PCI-MSI"}, msi: x86,
		files: map[string]string{"intel-iommu/cap": "19ed008c40780c66\n", "intel-iommu/ecap": "f050da\n"},
	}
}

// bootIOMMU makes the IOMMU and remapped interrupts. Callers hold mu.
func (k *Kernel) bootIOMMU(kind IOMMU) {
	s := kind.shape()
	k.host.iommu, k.host.msi = s.dir, s.msi
	k.mkdir(path.Join(s.dir, "devices"))
	for name, content := range s.files {
		k.put(path.Join(s.dir, name), content, readOnly)
	}
	k.link(path.Join("sys/class/iommu", s.name), s.dir)
	k.showIRQChips(s.chips...)
}

// WithIOMMU gives the node an IOMMU of another make than Intel's, and the
// interrupt chips that belong to it. It comes before the first function.
func (k *Kernel) WithIOMMU(kind IOMMU) {
	k.build(func() {
		if k.dropIOMMU() {
			k.bootIOMMU(kind)
		}
	})
}

// WithoutIOMMU takes the IOMMU and interrupt remapping away, as on a machine
// booted without them. It comes before the first function.
func (k *Kernel) WithoutIOMMU() {
	k.build(func() {
		k.dropIOMMU()
		k.host.noIOMMU = true
		k.showIRQChips("IO-APIC", "PCI-MSI")
	})
}

// dropIOMMU reports whether it could. Callers hold mu.
func (k *Kernel) dropIOMMU() bool {
	if len(k.functions) > 0 {
		k.wrong("take the IOMMU away: there are functions already")
		return false
	}
	k.remove(path.Join("sys/class/iommu", path.Base(k.host.iommu)))
	k.remove(k.host.iommu)
	return true
}
