package pci

import "fmt"

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
	ClassPCIBridge   = 0x0604
	ClassUSB         = 0x0c03
	ClassSerialOther = 0x0c80 // USB Type-C UCSI of a GPU
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
