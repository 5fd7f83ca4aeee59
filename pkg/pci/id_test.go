package pci_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestParseModalias(t *testing.T) {
	const text = "pci:v00008086d000010C9sv0000103Csd0000A03Cbc02sc07i80"
	got, ok := pci.ParseModalias(text)
	want := pci.Modalias{Vendor: 0x8086, Device: 0x10c9, SubVendor: 0x103c, SubDevice: 0xa03c, Class: 0x020780}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", ok, diff)
	}
	for _, bad := range []string{
		"", "pci:", "pci:v00008086", text + "\n", text + "00", text[1:], text[:len(text)-1],
		"pci:v00018086d000010C9sv0000103Csd0000A03Cbc02sc07i80",
		"pci:v00008086d000010C9sv*sd*bc02sc07i80",
		"pci:v+0008086d000010C9sv0000103Csd0000A03Cbc02sc07i80",
		"pci:d000010C9v00008086sv0000103Csd0000A03Cbc02sc07i80",
		"virtio:d00000001v00001AF4",
	} {
		if got, ok := pci.ParseModalias(bad); ok || got != (pci.Modalias{}) {
			t.Errorf("%q: %+v, %v", bad, got, ok)
		}
	}
}

func FuzzParseModalias(f *testing.F) {
	f.Add("pci:v00008086d000010C9sv0000103Csd0000A03Cbc02sc07i80")
	f.Fuzz(func(_ *testing.T, text string) { pci.ParseModalias(text) })
}
