package facts

import (
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DMAR are the flags of the firmware's DMAR table (Intel VT-d 8.1,
// include/linux/dmar.h).
type DMAR struct {
	// InterruptRemapping: the platform supports it.
	InterruptRemapping bool
	// X2APICOptOut asks the system not to use x2APIC.
	X2APICOptOut bool
	// DMAOptIn: the firmware keeps DMA confined until the system takes over.
	DMAOptIn bool
}

// DMAR returns what the table says, and the fact that it was read: its value is
// the flags, never the table.
func (n *Node) DMAR() (DMAR, Fact) {
	const flags = 37
	table, file := n.acpiTable("DMAR", flags+1)
	if !file.OK() {
		return DMAR{}, file
	}
	b := table[flags]
	file.Value = fmt.Sprintf("flags 0x%02x", b)
	return DMAR{InterruptRemapping: b&1 != 0, X2APICOptOut: b&2 != 0, DMAOptIn: b&4 != 0}, file
}

// IVRSRemaps reports whether the firmware's IVRS table says that AMD's IOMMU
// confined DMA before the boot (IOMMU_IVINFO_DMA_REMAP in
// drivers/iommu/amd/amd_iommu_types.h), with the fact that it was read.
func (n *Node) IVRSRemaps() (bool, Fact) {
	const info = 36
	table, file := n.acpiTable("IVRS", info+4)
	if !file.OK() {
		return false, file
	}
	v := binary.LittleEndian.Uint32([]byte(table[info:]))
	file.Value = fmt.Sprintf("IVinfo 0x%08x", v)
	return v&2 != 0, file
}

// acpiTable returns a table of at least size bytes.
func (n *Node) acpiTable(name string, size int) (string, Fact) {
	file := n.Read(path.Join("sys/firmware/acpi/tables", name))
	table := file.Value
	file.Value = ""
	if file.OK() && (len(table) < size || !strings.HasPrefix(table, name)) {
		file.Status, file.Err = Broken, fmt.Sprintf("it is no %s table", name)
	}
	return table, file
}

// VTdUnit is one IOMMU of Intel's.
type VTdUnit struct {
	// Name is the kernel's: "dmar0".
	Name string
	// Extended is its extended capability register.
	Extended Fact
	// RemapsInterrupts is bit 3 of it, DeviceTLB bit 2 (ecap_ir_support and
	// ecap_dev_iotlb_support in drivers/iommu/intel/iommu.h).
	RemapsInterrupts, DeviceTLB bool
	// Functions are those behind it.
	Functions []pci.Address
}

// VTdUnits returns the units by name, none on other makes.
func (n *Node) VTdUnits() []VTdUnit {
	const class = "sys/class/iommu"
	var units []VTdUnit
	for _, name := range n.Snapshot.Host.IOMMUs {
		if !strings.HasPrefix(name, "dmar") {
			continue
		}
		u := VTdUnit{Name: name, Extended: n.Read(path.Join(class, name, "intel-iommu/ecap"))}
		bits, err := strconv.ParseUint(u.Extended.Value, 16, 64)
		if u.Extended.OK() && err != nil {
			u.Extended.Status, u.Extended.Err = Broken, "it is no hexadecimal number"
		}
		u.RemapsInterrupts, u.DeviceTLB = bits&8 != 0, bits&4 != 0
		devices, _ := n.List(path.Join(class, name, "devices"))
		for _, d := range devices {
			if a, err := pci.ParseAddress(d); err == nil {
				u.Functions = append(u.Functions, a)
			}
		}
		slices.SortFunc(u.Functions, pci.Address.Compare)
		units = append(units, u)
	}
	return units
}
