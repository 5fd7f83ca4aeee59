package pci_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		text string
		want pci.Address
	}{
		{"0000:00:00.0", pci.Address{}},
		{"0000:3b:00.0", pci.Address{Bus: 0x3b}},
		{"00AB:Fe:1F.7", pci.Address{Domain: 0xab, Bus: 0xfe, Device: 0x1f, Function: 7}},
		{"10000:e1:00.0", pci.Address{Domain: 0x10000, Bus: 0xe1}},
		{"ffffffff:ff:1f.7", pci.Address{Domain: 0xffffffff, Bus: 0xff, Device: 0x1f, Function: 7}},
	}
	for _, tt := range tests {
		got, err := pci.ParseAddress(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseAddress(%q) = %v, %v; want %v", tt.text, got, err, tt.want)
		}
		if !strings.EqualFold(got.String(), tt.text) {
			t.Errorf("%q prints as %q", tt.text, got)
		}
		label, err := pci.ParseLabel(got.Label())
		if err != nil || label != tt.want {
			t.Errorf("ParseLabel(%q) = %v, %v; want %v", got.Label(), label, err, tt.want)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for _, text := range []string{
		"", "0000", "3b:00.0", "0000:3b:00", "0000:3b:00.8", "0000:3b:20.0", "0000:3bb:00.0", "0000:b:00.0",
		"000:3b:00.0", "000000000:3b:00.0", "0000:3b:00.0 ", " 0000:3b:00.0", "0000:3b:00.00", "0000:3b:0x.0",
		"+000:3b:00.0", "0000:-1:00.0", "0000:3b:00:0", "0000-3b-00-0", "0000:3b:00.0.0", "../0000:3b:00.0",
	} {
		got, err := pci.ParseAddress(text)
		var bad *pci.AddressError
		if !errors.As(err, &bad) || bad.Text != text {
			t.Errorf("ParseAddress(%q) = %v, %v; want an AddressError with the text", text, got, err)
		}
	}
	for _, text := range []string{"", "0000-3b-00", "0000-3b-00-0-0", "0000:3b:00.0", "0000-3b-00-8"} {
		if got, err := pci.ParseLabel(text); err == nil {
			t.Errorf("ParseLabel(%q) = %v, want an error", text, got)
		}
	}
}

func TestAddressOrder(t *testing.T) {
	want := []string{
		"0000:00:00.0", "0000:00:00.1", "0000:00:01.0", "0000:3b:00.0", "0001:00:00.0", "ffff:00:00.0", "10000:00:00.0",
	}
	var addrs []pci.Address
	for _, text := range slices.Backward(want) {
		addrs = append(addrs, parse(t, text))
	}
	slices.SortFunc(addrs, pci.Address.Compare)
	var got []string
	for _, a := range addrs {
		got = append(got, a.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestSameSlot(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"0000:3b:00.0", "0000:3b:00.7", true},
		{"0000:3b:00.0", "0000:3b:00.0", true},
		{"0000:3b:00.0", "0000:3b:01.0", false},
		{"0000:3b:00.0", "0000:3c:00.0", false},
		{"0000:3b:00.0", "0001:3b:00.0", false},
	}
	for _, tt := range tests {
		if got := parse(t, tt.a).SameSlot(parse(t, tt.b)); got != tt.want {
			t.Errorf("%s.SameSlot(%s) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// Addresses, ids and classes have one text form, in JSON too and as map keys.
func TestTextForms(t *testing.T) {
	type function struct {
		Address pci.Address         `json:"address"`
		Vendor  pci.ID              `json:"vendor"`
		Class   pci.Class           `json:"class"`
		Mates   map[pci.Address]int `json:"mates"`
	}
	want := function{
		Address: parse(t, "0000:3b:00.0"), Vendor: 0x10de, Class: 0x030200,
		Mates: map[pci.Address]int{parse(t, "0000:3b:00.1"): 1},
	}
	const text = `{"address":"0000:3b:00.0","vendor":"10de","class":"030200","mates":{"0000:3b:00.1":1}}`
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(data)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	var got function
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{"address":"3b:00.0"}`, `{"vendor":"10d"}`, `{"vendor":"0x10de1"}`, `{"class":"0302"}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s was read without an error", bad)
		}
	}
}

// TestAddressesAreTheKernelsFormat: the text of each is that of its "%04x:%02x:%02x.%x".
func TestAddressesAreTheKernelsFormat(t *testing.T) {
	for domain := uint32(1); ; domain = domain<<4 | 0xf {
		for _, a := range []pci.Address{{Domain: domain}, {Domain: domain - 1, Bus: 0x0a, Device: 0x1f, Function: 7}, {Bus: 0xff, Device: 0x10}} {
			want := fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
			if a.String() != want || a.Label() != strings.NewReplacer(":", "-", ".", "-").Replace(want) {
				t.Errorf("got %s and %s, want %s", a, a.Label(), want)
			}
		}
		if domain>>28 != 0 {
			return
		}
	}
}

func TestClass(t *testing.T) {
	var c pci.Class
	if err := c.UnmarshalText([]byte("0x030200")); err != nil {
		t.Fatal(err)
	}
	if c.Base() != pci.BaseDisplay || c.Sub() != pci.Class3D || c.String() != "030200" {
		t.Errorf("class %v: base %#x, sub %#x; want 030200, 0x3, 0x302", c, c.Base(), c.Sub())
	}
}

func parse(tb testing.TB, text string) pci.Address {
	tb.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"0000:3b:00.0", "10000:e1:1f.7", "0000:3b:00.8", "0000-3b-00-0", "::.", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := pci.ParseAddress(text)
		if err != nil {
			return
		}
		if !strings.EqualFold(strings.TrimLeft(a.String(), "0"), strings.TrimLeft(text, "0")) {
			t.Errorf("%q was read as %v", text, a)
		}
		if again, err := pci.ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%v was read back as %v, %v", a, again, err)
		}
		if label, err := pci.ParseLabel(a.Label()); err != nil || label != a {
			t.Errorf("label %q was read back as %v, %v", a.Label(), label, err)
		}
	})
}

func FuzzClass(f *testing.F) {
	for _, seed := range []string{"030200", "0x030200", "0X030200", "-30200", "03020", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c, again pci.Class
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(c.String())); err != nil || again != c {
			t.Errorf("%q was read as %v and that as %v, %v", text, c, again, err)
		}
		if uint16(c.Base()) != c.Sub()>>8 {
			t.Errorf("%v has base %#x but sub %#x", c, c.Base(), c.Sub())
		}
	})
}
