package isolation_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// space returns a configuration space with MSI at 0x50, MSI-X at 0x60 and PCI
// Express at 0x70.
func space() []byte {
	c := make([]byte, 4096)
	binary.LittleEndian.PutUint32(c, 0x233010de)
	c[0x06] = 0x10 // status: has a capability list
	c[0x34] = 0x50
	copy(c[0x50:], []byte{0x05, 0x60})
	copy(c[0x60:], []byte{0x11, 0x70})
	copy(c[0x70:], []byte{0x10, 0x00})
	binary.LittleEndian.PutUint32(c[0x10:], 0xe0000000)
	return c
}

func fingerprint(t *testing.T, config []byte) isolation.Fingerprint {
	t.Helper()
	fp, err := isolation.FingerprintOf(pci.Address{Bus: 0x3b}, config)
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		change func(c []byte)
		want   string // in the reason; empty for proven clean
	}{
		"nothing":              {func([]byte) {}, ""},
		"the interrupt line":   {func(c []byte) { c[0x3c] = 11 }, ""},
		"status and cache":     {func(c []byte) { c[0x07], c[0x0c] = 0x08, 0x10 }, ""},
		"a BAR":                {func(c []byte) { c[0x13] = 0xd0 }, "differs"},
		"the device id":        {func(c []byte) { c[0x02] = 0x31 }, "differs"},
		"the subsystem":        {func(c []byte) { c[0x2c] = 1 }, "differs"},
		"a capability is gone": {func(c []byte) { c[0x51] = 0x70 }, "differs"},
		"a new capability":     {func(c []byte) { c[0x71] = 0x80; copy(c[0x80:], []byte{0x09, 0x00}) }, "differs"},
		"bus mastering":        {func(c []byte) { c[0x04] |= 0x04 }, "bus mastering"},
		"MSI":                  {func(c []byte) { c[0x52] |= 0x01 }, "message interrupts"},
		"MSI-X":                {func(c []byte) { c[0x63] |= 0x80 }, "message interrupts"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			changed := space()
			tt.change(changed)
			got := isolation.Compare(fingerprint(t, space()), fingerprint(t, changed))
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("Compare = %q; want %q in it", got, tt.want)
			}
		})
	}
}

// TestCompareShorterRead checks that a space read with less privilege is not
// taken for another device; the digests are not comparable.
func TestCompareShorterRead(t *testing.T) {
	full := fingerprint(t, space())
	short := fingerprint(t, space()[:64])
	if why := isolation.Compare(full, short); why == "" {
		t.Error("a header alone was taken for proof of the whole space")
	}
}

func TestFingerprintOfDeadFunction(t *testing.T) {
	_, err := isolation.FingerprintOf(pci.Address{Bus: 0x3b}, bytes.Repeat([]byte{0xff}, 4096))
	var dead *isolation.DeadError
	if !errors.As(err, &dead) || !strings.Contains(err.Error(), "0000:3b:00.0") {
		t.Errorf("FingerprintOf = %v; want a DeadError that names the function", err)
	}
}

// TestFingerprintOfVF checks that the ids of a VF, which read ffff by the
// SR-IOV specification, are not taken for death.
func TestFingerprintOfVF(t *testing.T) {
	vf := space()
	copy(vf, []byte{0xff, 0xff, 0xff, 0xff})
	fingerprint(t, vf)
}

func TestFingerprintOfTooLittle(t *testing.T) {
	if _, err := isolation.FingerprintOf(pci.Address{}, make([]byte, 63)); err == nil {
		t.Error("FingerprintOf 63 bytes = nil; want an error")
	}
}

func FuzzFingerprintOf(f *testing.F) {
	f.Add(space())
	f.Add(make([]byte, 64))
	f.Add(bytes.Repeat([]byte{0xff}, 256))
	f.Fuzz(func(t *testing.T, config []byte) {
		fp, err := isolation.FingerprintOf(pci.Address{}, config)
		if err != nil {
			return
		}
		if why := isolation.Compare(fp, fp); why != "" {
			t.Errorf("a space differs from itself: %s", why)
		}
	})
}
