package pci

import "encoding/binary"

// Each function here decodes the registers of one capability from bytes that
// begin at its header, and returns nil where they are too few.

// power decodes PCI_PM_CTRL.
func power(b []byte) *Power {
	ctrl, ok := word(b, 4)
	if !ok {
		return nil
	}
	return &Power{NoSoftReset: ctrl&0x0008 != 0, State: uint8(ctrl & 0x0003)}
}

// express decodes PCI_EXP_FLAGS, the FLR bit of PCI_EXP_DEVCAP and, where there is
// a slot, the hot-plug bit of PCI_EXP_SLTCAP.
func express(b []byte) *Express {
	flags, ok := word(b, 2)
	high, ok2 := word(b, 6)
	if !ok || !ok2 {
		return nil
	}
	const slotImplemented, hotPlugCapable = 0x0100, 0x0040
	slot, ok := word(b, 0x14)
	return &Express{
		Type: PortType(flags >> 4 & 0xf), FLR: high&0x1000 != 0,
		HotPlug: ok && flags&slotImplemented != 0 && slot&hotPlugCapable != 0,
	}
}

// advancedFLR decodes PCI_AF_CAP. As the kernel's pci_af_flr it wants both
// the FLR bit and "transactions pending", by which the reset's end is seen.
func advancedFLR(b []byte) bool {
	const transactionsPending, flr = 0x01, 0x02
	return len(b) > 3 && b[3]&(transactionsPending|flr) == transactionsPending|flr
}

// acs decodes PCI_ACS_CAP and PCI_ACS_CTRL.
func acs(b []byte) *ACS {
	capability, ok := word(b, 4)
	control, ok2 := word(b, 6)
	if !ok || !ok2 {
		return nil
	}
	return &ACS{Capability: capability, Control: control}
}

// switchable decodes the enable bit of a capability's control register.
func switchable(b []byte, control int, enable uint16) *Switchable {
	value, ok := word(b, control)
	if !ok {
		return nil
	}
	return &Switchable{Enabled: value&enable != 0, Control: value}
}

// sriov decodes PCI_SRIOV_TOTAL_VF, PCI_SRIOV_NUM_VF and PCI_SRIOV_VF_DID.
func sriov(b []byte) *SRIOV {
	total, ok := word(b, 0x0e)
	num, ok2 := word(b, 0x10)
	id, ok3 := word(b, 0x1a)
	if !ok || !ok2 || !ok3 {
		return nil
	}
	return &SRIOV{TotalVFs: total, NumVFs: num, VFDevice: ID(id)}
}

// word reads a register of two bytes.
func word(b []byte, at int) (uint16, bool) {
	if at+2 > len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint16(b[at:]), true
}
