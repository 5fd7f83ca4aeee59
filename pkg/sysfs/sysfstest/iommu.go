package sysfstest

import "path"

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
