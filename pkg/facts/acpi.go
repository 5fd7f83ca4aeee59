package facts

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// DMAR contains the flags of the ACPI table DMAR in /sys/firmware/acpi/tables (Intel VT-d 8.1, include/linux/dmar.h).
type DMAR struct {
	// Flags is the whole byte of flags.
	Flags byte
	// InterruptRemapping: the platform supports interrupt remapping.
	InterruptRemapping bool
	// X2APICOptOut asks the system not to use x2APIC.
	X2APICOptOut bool
	// DMAOptIn: the firmware keeps DMA confined until the system takes over.
	DMAOptIn bool
}

// ParseDMAR parses a DMAR table. It returns an error if the text is not one.
func ParseDMAR(table string) (DMAR, error) {
	// A header of 36 bytes, which all tables have, and the host's address width come before the flags.
	const at = 37
	if err := check(table, "DMAR", at+1); err != nil {
		return DMAR{}, err
	}
	// INTR_REMAP, X2APIC_OPT_OUT and DMA_CTRL_PLATFORM_OPT_IN_FLAG (VT-d specification, 8.1).
	b := table[at]
	return DMAR{Flags: b, InterruptRemapping: b&1 != 0, X2APICOptOut: b&2 != 0, DMAOptIn: b&4 != 0}, nil
}

// IVRS is what AMD's ACPI table IVRS says about the IOMMU.
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
	// IVinfo is the first field after the header, and its bit 1 is DMA remapping before the boot (IOMMU_IVINFO_OFFSET and
	// IOMMU_IVINFO_DMA_REMAP in drivers/iommu/amd/amd_iommu_types.h).
	v := binary.LittleEndian.Uint32([]byte(table[at : at+4]))
	return IVRS{Info: v, Remapped: v&2 != 0}, nil
}

// IORT is what Arm's ACPI table IORT says about IOMMUs.
type IORT struct {
	// SMMUs is the number of IOMMUs that the table describes. It can be zero, because the table also describes interrupt controllers
	// and root complexes.
	SMMUs int
}

// ParseIORT parses an IORT table (Arm DEN 0049, include/acpi/actbl2.h). It returns an error if the text is not one.
func ParseIORT(table string) (IORT, error) {
	const count, header, smmu, smmu3 = 36, 4, 3, 4
	if err := check(table, "IORT", count+8); err != nil {
		return IORT{}, err
	}
	nodes, at := binary.LittleEndian.Uint32([]byte(table[count:])), binary.LittleEndian.Uint32([]byte(table[count+4:]))
	found := IORT{}
	for ; nodes > 0 && uint64(at)+header <= uint64(len(table)); nodes-- {
		kind, length := table[at], binary.LittleEndian.Uint16([]byte(table[at+1:]))
		if kind == smmu || kind == smmu3 {
			found.SMMUs++
		}
		// Without this check, a node of length zero would be counted as often as the header says.
		if length < header {
			break
		}
		at += uint32(length)
	}
	return found, nil
}

func check(table, name string, size int) error {
	if len(table) < size || !strings.HasPrefix(table, name) {
		return fmt.Errorf("it is no %s table", name)
	}
	return nil
}
