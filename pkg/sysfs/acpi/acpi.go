// Package acpi reads the two tables by which firmware describes its IOMMUs, as
// /sys/firmware/acpi/tables has them.
package acpi

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// DMAR are the flags of the table of that name (Intel VT-d 8.1, include/linux/dmar.h).
type DMAR struct {
	// Flags are all of them.
	Flags byte
	// InterruptRemapping: the platform supports it.
	InterruptRemapping bool
	// X2APICOptOut asks the system not to use x2APIC.
	X2APICOptOut bool
	// DMAOptIn: the firmware keeps DMA confined until the system takes over.
	DMAOptIn bool
}

// ParseDMAR parses a DMAR table. It returns an error if the text is not one.
func ParseDMAR(table string) (DMAR, error) {
	const at = 37
	if err := check(table, "DMAR", at+1); err != nil {
		return DMAR{}, err
	}
	b := table[at]
	return DMAR{Flags: b, InterruptRemapping: b&1 != 0, X2APICOptOut: b&2 != 0, DMAOptIn: b&4 != 0}, nil
}

// IVRS is what AMD's table says.
type IVRS struct {
	// Info is the field IVinfo.
	Info uint32
	// Remapped: the IOMMU confined DMA before the boot (IOMMU_IVINFO_DMA_REMAP in
	// drivers/iommu/amd/amd_iommu_types.h).
	Remapped bool
}

// ParseIVRS parses an IVRS table. It returns an error if the text is not one.
func ParseIVRS(table string) (IVRS, error) {
	const at = 36
	if err := check(table, "IVRS", at+4); err != nil {
		return IVRS{}, err
	}
	v := binary.LittleEndian.Uint32([]byte(table[at : at+4]))
	return IVRS{Info: v, Remapped: v&2 != 0}, nil
}

func check(table, name string, size int) error {
	if len(table) < size || !strings.HasPrefix(table, name) {
		return fmt.Errorf("it is no %s table", name)
	}
	return nil
}
