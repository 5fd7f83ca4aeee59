package hosts_test

import "encoding/binary"

// headerSize is that of every ACPI table.
const headerSize = 36

// acpiTable makes a table of the firmware, or one that says nothing where the test needs no more of it than that it is there.
func acpiTable(name string) string {
	bodies := map[string][]byte{
		// 46 address bits, interrupt remapping and opt-in
		"DMAR": {0x2d, 0x05, 10: 0, 11: 0},
		// IVinfo, and an IVHD of type 11h for function 00:00.2
		"IVRS": append([]byte{0x41, 0x30, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x30, 40, 0, 2, 0, 0x40, 0}, make([]byte, 32)...),
		// no nodes
		"IORT": {0, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0},
		// an SMMUv3 (node type 4)
		"IORT SMMU": append([]byte{1, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 4, 68, 0}, make([]byte, 65)...),
	}
	body := bodies[name]
	table := make([]byte, headerSize, headerSize+len(body))
	copy(table, name[:4])
	table[8] = 1
	table = append(table, body...)
	binary.LittleEndian.PutUint32(table[4:], uint32(len(table)))
	return string(table)
}
