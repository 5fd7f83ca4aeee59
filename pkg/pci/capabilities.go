package pci

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Capabilities are the facts of a function's configuration space that decide how it can be isolated and reset. A nil
// pointer means that the capability is absent, unless Truncated is set: then it may only have been unreadable.
type Capabilities struct {
	// Truncated says that only a part of the space was readable (64 bytes without CAP_SYS_ADMIN, 256 for conventional
	// PCI). Then an absent extended capability proves nothing.
	Truncated bool `json:"truncated,omitempty"`
	// Header is the layout of the function's configuration header, or "" if it was not read.
	Header  HeaderType `json:"-"`
	Express *Express   `json:"express,omitempty"`
	// Serial is the Device Serial Number as lspci prints it, "00-15-17-ff-ff-8c-2a-10"; empty if there is none. All
	// functions of a card have the same.
	Serial string `json:"serialNumber,omitempty"`
	// AFFLR is set when the conventional Advanced Features capability offers FLR.
	AFFLR bool   `json:"afFLR,omitempty"`
	Power *Power `json:"power,omitempty"`
	MSI   bool   `json:"msi,omitempty"`
	MSIX  bool   `json:"msix,omitempty"`
	AER   bool   `json:"aer,omitempty"`
	// DPC is Downstream Port Containment: a port with it cuts off the devices below it on an uncorrectable error.
	DPC   *Switchable `json:"dpc,omitempty"`
	ACS   *ACS        `json:"acs,omitempty"`
	ATS   *Switchable `json:"ats,omitempty"`
	PASID *Switchable `json:"pasid,omitempty"`
	PRI   *Switchable `json:"pri,omitempty"`
	SRIOV *SRIOV      `json:"sriov,omitempty"`
	// Switches locate the capabilities that software enables and disables while the function runs; see
	// [Capabilities.Reread].
	Switches []Capability `json:"-"`
}

// HeaderType is the layout of a configuration header (PCI_HEADER_TYPE_*).
type HeaderType string

// Header types, by the kernel's words.
const (
	HeaderNormal  HeaderType = "normal"
	HeaderBridge  HeaderType = "bridge"
	HeaderCardBus HeaderType = "cardbus"
)

// PortType is the device/port type of the PCI Express capability (bits 7:4
// of the PCI Express Capabilities register).
type PortType uint8

// Device and port types (PCI Express Base 7.5.3.2, PCI_EXP_TYPE_*).
const (
	Endpoint         PortType = 0x0
	LegacyEndpoint   PortType = 0x1
	RootPort         PortType = 0x4
	UpstreamPort     PortType = 0x5
	DownstreamPort   PortType = 0x6
	PCIeToPCI        PortType = 0x7
	PCIToPCIe        PortType = 0x8
	RCEndpoint       PortType = 0x9
	RCEventCollector PortType = 0xa
)

// Express is the PCI Express capability.
type Express struct {
	Type PortType `json:"type"`
	// FLR is set when the function can be reset by a Function Level Reset.
	FLR bool `json:"flr,omitempty"`
	// HotPlug is set for a port with a slot that takes devices while it runs.
	HotPlug bool `json:"hotPlug,omitempty"`
}

// Power is the power management capability.
type Power struct {
	// NoSoftReset is set when a move from D3hot to D0 does not reset the
	// function, so that the kernel's "pm" reset is not offered.
	NoSoftReset bool `json:"noSoftReset,omitempty"`
	// State is the current power state, 0 (D0) to 3 (D3hot).
	State uint8 `json:"state"`
}

// ACS bits of the capability and control registers (PCI_ACS_*).
const (
	ACSSourceValidation    = 0x01
	ACSTranslationBlocking = 0x02
	ACSRequestRedirect     = 0x04
	ACSCompletionRedirect  = 0x08
	ACSUpstreamForwarding  = 0x10
	ACSEgressControl       = 0x20
	ACSDirectTranslated    = 0x40
)

// ACS is the Access Control Services capability: the services that the port has, and those that are enabled.
type ACS struct {
	Capability uint16 `json:"capability"`
	Control    uint16 `json:"control"`
}

// Switchable is a capability that software enables (ATS, PASID, PRI, DPC).
type Switchable struct {
	Enabled bool `json:"enabled"`
	// Control is the whole control register.
	Control uint16 `json:"control"`
}

// SRIOV is the single root I/O virtualization capability of a PF.
type SRIOV struct {
	TotalVFs uint16 `json:"totalVFs"`
	NumVFs   uint16 `json:"numVFs"`
	// VFDevice is the device id that the PF's VFs carry.
	VFDevice ID `json:"vfDevice"`
}

// Offsets and masks of the configuration header (PCI_* in pci_regs.h).
const (
	headerSize       = 64
	conventionalSize = 256
	expressSize      = 4096

	offStatus         = 0x06
	offHeaderType     = 0x0e
	headerTypeMask    = 0x7f // the highest bit says that the device has several functions
	offCapabilityList = 0x34
	statusHasList     = 0x10
)

// Identifiers of conventional capabilities (PCI_CAP_ID_*).
const (
	capPower    = 0x01
	capMSI      = 0x05
	capExpress  = 0x10
	capMSIX     = 0x11
	capAdvanced = 0x13
)

// Identifiers of extended capabilities (PCI_EXT_CAP_ID_*).
const (
	extAER   = 0x0001
	extDSN   = 0x0003
	extACS   = 0x000d
	extATS   = 0x000f
	extSRIOV = 0x0010
	extPRI   = 0x0013
	extPASID = 0x001b
	extDPC   = 0x001d
)

// Length limits of the two lists, as the kernel has them (PCI_FIND_CAP_TTL and
// the ttl of pci_find_next_ext_capability): a list that is longer has a loop.
const (
	maxCapabilities = 48
	maxExtended     = (expressSize - conventionalSize) / 8
)

// MalformedError says that a capability list can't be followed to its end. The
// device writes the list, so it may hold anything.
type MalformedError struct {
	// Offset is where in configuration space the list breaks off.
	Offset int
	// Problem completes the sentence: "the capability at 0x40 ...".
	Problem string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("the capability at 0x%02x %s", e.Offset, e.Problem)
}

// Dead reports whether a configuration space reads all ones, as it does for a function that fell off the bus or does
// not answer. Vendor and device IDs of ffff show that, except for a VF: by the SR-IOV specification, the IDs of a VF
// read ffff, so its whole header must be ones.
func Dead(config []byte, isVF bool) bool {
	n := 4
	if isVF {
		n = headerSize
	}
	return len(config) >= n && !slices.ContainsFunc(config[:n], func(b byte) bool { return b != 0xff })
}

// ParseCapabilities walks the capability lists of a configuration space: as many of its bytes as the kernel lets the caller
// read, from offset 0 (64 without CAP_SYS_ADMIN, 256 for a conventional function, 4096 for PCI Express).
//
// It returns the capabilities that it found, even together with a *[MalformedError]. Then the other capabilities are
// unknown, as they are if the space reads all ones, and Truncated is set.
func ParseCapabilities(config []byte) (Capabilities, error) {
	var caps Capabilities
	if len(config) < headerSize {
		caps.Truncated = true
		return caps, &MalformedError{Offset: len(config), Problem: "is not readable: fewer than 64 bytes of configuration space"}
	}
	// Whether the function is a VF is unknown here, and the ids of a live VF read ffff, so the whole header decides.
	if Dead(config, true) {
		caps.Truncated = true
		return caps, nil
	}
	caps.Header = headerType(config)
	chain, err := Chain(config)
	for _, c := range chain {
		if c.isSwitch() {
			if slices.ContainsFunc(caps.Switches, func(other Capability) bool { return other.ID == c.ID }) {
				continue // the kernel takes the first (pci_find_ext_capability)
			}
			caps.Switches = append(caps.Switches, c)
		}
		caps.take(c, config[c.Offset:])
	}
	caps.Truncated = err != nil || truncated(config, &caps)
	return caps, err
}

// headerType returns the layout that a configuration header has, empty for one that PCI does not define.
func headerType(config []byte) HeaderType {
	switch config[offHeaderType] & headerTypeMask {
	case 0:
		return HeaderNormal
	case 1:
		return HeaderBridge
	case 2:
		return HeaderCardBus
	}
	return ""
}

// truncated reports whether the space continues after the end of config. Only PCI Express has more than 256 bytes.
func truncated(config []byte, caps *Capabilities) bool {
	if caps.Express == nil {
		return len(config) < conventionalSize
	}
	return len(config) < expressSize
}

// take decodes one capability; b begins at its header and may end before the
// capability does.
func (c *Capabilities) take(entry Capability, b []byte) {
	if entry.Extended {
		c.takeExtended(entry.ID, b)
		return
	}
	switch entry.ID {
	case capPower:
		c.Power = power(b)
	case capMSI:
		c.MSI = true
	case capMSIX:
		c.MSIX = true
	case capExpress:
		c.Express = express(b)
	case capAdvanced:
		c.AFFLR = advancedFLR(b)
	}
}

// takeExtended decodes one extended capability, as take does.
func (c *Capabilities) takeExtended(id uint16, b []byte) {
	switch id {
	case extAER:
		c.AER = true
	case extDSN:
		c.Serial = serial(b)
	case extACS:
		c.ACS = acs(b)
	case extATS:
		c.ATS = switchable(b, 6, 0x8000)
	case extSRIOV:
		c.SRIOV = sriov(b)
	case extPRI:
		c.PRI = switchable(b, 4, 0x0001)
	case extPASID:
		c.PASID = switchable(b, 6, 0x0001)
	case extDPC: // triggered by fatal errors, or by others too
		c.DPC = switchable(b, 6, 0x0003)
	}
}

// Each function here decodes the registers of one capability from bytes that
// begin at its header, and returns nil if they are too few.

// power decodes PCI_PM_CTRL.
func power(b []byte) *Power {
	ctrl, ok := word(b, 4)
	if !ok {
		return nil
	}
	return &Power{NoSoftReset: ctrl&0x0008 != 0, State: uint8(ctrl & 0x0003)}
}

// express decodes PCI_EXP_FLAGS, the FLR bit of PCI_EXP_DEVCAP and, if there is a slot, the hot-plug bit of PCI_EXP_SLTCAP.
func express(b []byte) *Express {
	flags, ok := word(b, 2)
	high, ok2 := word(b, 6)
	if !ok || !ok2 {
		return nil
	}
	const slotImplemented, hotPlugCapable = 0x0100, 0x0040
	// A truncated space may end before this register; the rest of the capability is valid then.
	slot, ok := word(b, 0x14)
	return &Express{
		Type: PortType(flags >> 4 & 0xf), FLR: high&0x1000 != 0,
		HotPlug: ok && flags&slotImplemented != 0 && slot&hotPlugCapable != 0,
	}
}

// advancedFLR decodes PCI_AF_CAP. Like the kernel's pci_af_flr, it requires both the FLR bit and "transactions
// pending", which shows when the reset has ended.
func advancedFLR(b []byte) bool {
	const transactionsPending, flr = 0x01, 0x02
	return len(b) > 3 && b[3]&(transactionsPending|flr) == transactionsPending|flr
}

// serial decodes the Device Serial Number, an EUI-64 in two words, the upper one last. A number that is all zeros or all
// ones was never programmed and names no device.
func serial(b []byte) string {
	const first, size = 4, 8
	if len(b) < first+size {
		return ""
	}
	n := binary.LittleEndian.Uint64(b[first:])
	if n == 0 || n == 1<<64-1 {
		return ""
	}
	var eui [size]byte
	// Registers are little-endian, and an EUI-64 is written from its first octet on.
	binary.BigEndian.PutUint64(eui[:], n)
	text := make([]string, size)
	for i, octet := range eui {
		text[i] = fmt.Sprintf("%02x", octet)
	}
	return strings.Join(text, "-")
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

// ParseFatalErrors returns the total of a function's aer_dev_fatal: how many fatal
// errors the kernel counted since it found the function
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats); false if there is none.
func ParseFatalErrors(text string) (total uint64, ok bool) {
	for line := range strings.Lines(text) {
		count, found := strings.CutPrefix(strings.TrimSpace(line), "TOTAL_ERR_FATAL ")
		if total, err := strconv.ParseUint(count, 10, 64); found && err == nil {
			return total, true
		}
	}
	return 0, false
}
