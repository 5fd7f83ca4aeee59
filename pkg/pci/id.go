package pci

import (
	"fmt"
	"strings"
)

// ID is a vendor or device id. Its text form is four lower-case hexadecimal
// digits, as in pci.ids and in lspci -n: "10de".
type ID uint16

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
