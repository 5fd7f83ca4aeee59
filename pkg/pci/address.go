// Package pci has the types of PCI: addresses, IDs, class codes, and the capabilities in a function's configuration
// space. It parses, prints and compares them. It reads no files.
//
// Layouts follow the PCI Local Bus and PCI Express Base specifications; the
// constants are those of Linux's include/uapi/linux/pci_regs.h.
package pci

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address names one function: domain, bus, device and function number. It is
// comparable, so it serves as a map key, and its text form is the kernel's:
// "0000:3b:00.0". Domains above ffff (Intel VMD) print with more digits, as
// the kernel's "%04x" does.
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0..31
	Function uint8 // 0..7
}

// ParseAddress reads the kernel's form of an address, domain included:
// "0000:3b:00.0", "10000:01:00.0". Digits may be upper or lower case. The
// short form without a domain is refused: on a host with several domains it
// names more than one function.
func ParseAddress(s string) (Address, error) {
	domain, rest, ok := strings.Cut(s, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	dev, fn, ok3 := strings.Cut(rest, ".")
	if !ok || !ok2 || !ok3 {
		return Address{}, &AddressError{Text: s}
	}
	return fromFields(s, domain, bus, dev, fn)
}

// ParseLabel reads the form of an address that fits a DNS label, as written
// by [Address.Label]: "0000-3b-00-0".
func ParseLabel(s string) (Address, error) {
	f := strings.Split(s, "-")
	if len(f) != 4 {
		return Address{}, &AddressError{Text: s}
	}
	return fromFields(s, f[0], f[1], f[2], f[3])
}

// fromFields parses the four hexadecimal fields of an address. The error shows text.
func fromFields(text, domain, bus, dev, fn string) (Address, error) {
	d, ok := hex(domain, 4, 8, 1<<32-1)
	b, ok2 := hex(bus, 2, 2, 0xff)
	v, ok3 := hex(dev, 2, 2, 0x1f)
	f, ok4 := hex(fn, 1, 1, 7)
	if !ok || !ok2 || !ok3 || !ok4 {
		return Address{}, &AddressError{Text: text}
	}
	return Address{Domain: uint32(d), Bus: uint8(b), Device: uint8(v), Function: uint8(f)}, nil
}

// hex parses s as a hexadecimal number of lo to hi digits, at most limit.
func hex(s string, lo, hi int, limit uint64) (uint64, bool) {
	if len(s) < lo || len(s) > hi {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && n <= limit
}

// AddressError says that a text is not an address.
type AddressError struct{ Text string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("%q is not a PCI address (want domain:bus:device.function, such as 0000:3b:00.0)", e.Text)
}

// String returns the kernel's form, "0000:3b:00.0".
func (a Address) String() string { return string(a.text(':', '.')) }

// Label returns the address as part of a DNS label, "0000-3b-00-0".
func (a Address) Label() string { return string(a.text('-', '-')) }

// text returns the fields with these separators. Nodes have thousands of addresses, and reports name them many times: this takes
// a fraction of the time of a format.
func (a Address) text(colon, dot byte) []byte {
	b := make([]byte, 0, len("0000:00:00.0"))
	b = append(appendHex(b, a.Domain, 4), colon)
	b = append(appendHex(b, uint32(a.Bus), 2), colon)
	b = append(appendHex(b, uint32(a.Device), 2), dot)
	return appendHex(b, uint32(a.Function), 1)
}

// appendHex writes a number with at least so many digits.
func appendHex(b []byte, n uint32, digits int) []byte {
	for ; digits > 1 && n>>(4*(digits-1)) == 0; digits-- {
		b = append(b, '0')
	}
	return strconv.AppendUint(b, uint64(n), 16)
}

// Compare orders by domain, bus, device, function. It suits slices.SortFunc.
func (a Address) Compare(b Address) int { return cmp.Compare(a.number(), b.number()) }

// number returns the address as one number, because a node's functions are found by binary searches.
func (a Address) number() uint64 {
	return uint64(a.Domain)<<24 | uint64(a.Bus)<<16 | uint64(a.Device)<<8 | uint64(a.Function)
}

// SameSlot reports whether a and b have one device number. If they do, they are functions of one physical device. A
// card with ARI may have further functions, with other device numbers.
func (a Address) SameSlot(b Address) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// MarshalText implements [encoding.TextMarshaler] with the kernel's form.
func (a Address) MarshalText() ([]byte, error) { return a.text(':', '.'), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] by [ParseAddress].
func (a *Address) UnmarshalText(text []byte) error {
	parsed, err := ParseAddress(string(text))
	if err != nil {
		return err
	}
	*a = parsed
	return nil
}
