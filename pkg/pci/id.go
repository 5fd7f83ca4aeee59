package pci

import (
	"fmt"
	"strings"
)

// ID is a vendor or device id. Its text form is four lower-case hexadecimal
// digits, as in pci.ids and in lspci -n: "10de".
type ID uint16

// Vendors whose functions are treated in a way of their own.
const (
	VendorAMD      ID = 0x1002
	VendorIntel    ID = 0x8086
	VendorMellanox ID = 0x15b3
	VendorNVIDIA   ID = 0x10de
)

// String returns four hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("%04x", uint16(id)) }

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; four digits, with or
// without "0x".
func (id *ID) UnmarshalText(text []byte) error {
	n, err := unmarshalHex(text, 4)
	*id = ID(n)
	return err
}

// unmarshalHex reads exactly digits hexadecimal digits after an optional "0x".
func unmarshalHex(text []byte, digits int) (uint64, error) {
	s := strings.TrimPrefix(string(text), "0x")
	n, ok := hex(s, digits, digits, 1<<(4*digits)-1)
	if !ok {
		return 0, fmt.Errorf("%q is not %d hexadecimal digits", text, digits)
	}
	return n, nil
}

// Class is a function's 24-bit class code: base class, subclass and
// programming interface, as in sysfs' "class" attribute (0x030200).
type Class uint32

// Base classes and subclasses that matter to assignment, as base<<8|sub
// (PCI Code and ID Assignment Specification).
const (
	ClassNVMe        = 0x0108
	ClassEthernet    = 0x0200
	ClassInfiniBand  = 0x0207
	ClassVGA         = 0x0300
	Class3D          = 0x0302
	ClassAudio       = 0x0403
	ClassHostBridge  = 0x0600
	ClassISABridge   = 0x0601
	ClassEISABridge  = 0x0602
	ClassMCABridge   = 0x0603
	ClassPCIBridge   = 0x0604
	ClassPCMCIA      = 0x0605
	ClassNuBus       = 0x0606
	ClassCardBus     = 0x0607
	ClassRACEway     = 0x0608
	ClassSemiPCI     = 0x0609 // a semi-transparent PCI bridge
	ClassIBBridge    = 0x060a // a bridge from InfiniBand to PCI
	ClassOtherBridge = 0x0680 // an NVSwitch, a non-transparent bridge
	ClassUSB         = 0x0c03
	ClassSerialOther = 0x0c80 // USB Type-C UCSI of a GPU
	ClassCoprocessor = 0x0b40 // an accelerator for encryption or compression, such as Intel's QuickAssist
	BaseStorage      = 0x01
	BaseNetwork      = 0x02
	BaseDisplay      = 0x03
	BaseBridge       = 0x06
	BaseAccelerator  = 0x12
)

// Base returns the base class, the top 8 bits.
func (c Class) Base() uint8 { return uint8(c >> 16) }

// Sub returns base class and subclass, the top 16 bits: 0x0302.
func (c Class) Sub() uint16 { return uint16(c >> 8) }

// String returns the six hexadecimal digits of the code: "030200".
func (c Class) String() string { return fmt.Sprintf("%06x", uint32(c)) }

// MarshalText implements [encoding.TextMarshaler].
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; six digits, with or
// without "0x".
func (c *Class) UnmarshalText(text []byte) error {
	n, err := unmarshalHex(text, 6)
	*c = Class(n)
	return err
}

// Modalias identifies the drivers of a function. The kernel prints it from
// the same numbers as the attributes of its parts (drivers/pci/pci-sysfs.c
// modalias_show), so that one read gives all of them.
type Modalias struct {
	Vendor, Device, SubVendor, SubDevice ID
	Class                                Class
}

// ParseModalias reads "pci:v00008086d000010C9sv00008086sd0000A03Cbc02sc00i00";
// false for anything else, patterns included.
func ParseModalias(text string) (Modalias, bool) {
	rest, ok := strings.CutPrefix(text, "pci:")
	field := func(key string, digits int, limit uint64) uint64 {
		after, found := strings.CutPrefix(rest, key)
		if !found || len(after) < digits {
			// The fields after this one return 0 too, and the caller looks at
			// ok once.
			ok = false
			return 0
		}
		n, valid := hex(after[:digits], digits, digits, limit)
		rest, ok = after[digits:], ok && valid
		return n
	}
	id := func(key string) ID { return ID(field(key, 8, 0xffff)) }
	m := Modalias{Vendor: id("v"), Device: id("d"), SubVendor: id("sv"), SubDevice: id("sd")}
	m.Class = Class(field("bc", 2, 0xff)<<16 | field("sc", 2, 0xff)<<8 | field("i", 2, 0xff))
	if !ok || rest != "" {
		return Modalias{}, false
	}
	return m, true
}
