package pci_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// resource is the content of a GPU's "resource": a 16 MiB BAR, a 64-bit
// prefetchable one of 64 GiB and a 64-bit one of 32 MiB, I/O ports, the ROM, and
// SR-IOV BARs after that.
const resource = `0x00000000c5000000 0x00000000c5ffffff 0x0000000000040200
0x0000206000000000 0x0000206fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000207000000000 0x0000207001ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000004000 0x000000000000407f 0x0000000000040101
0x00000000c6000000 0x00000000c607ffff 0x0000000000046200
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000207100000000 0x000020710fffffff 0x000000000014220c
`

func TestParseResources(t *testing.T) {
	type bar struct {
		Size             uint64
		IO, Prefetch, Is bool
	}
	want := []bar{
		{Size: 16 << 20},
		{Size: 64 << 30, Prefetch: true, Is: true},
		{},
		{Size: 32 << 20, Prefetch: true, Is: true},
		{},
		{Size: 128, IO: true},
	}
	resources, err := pci.ParseResources(resource)
	if err != nil {
		t.Fatal(err)
	}
	var got []bar
	for _, r := range resources {
		got = append(got, bar{Size: r.Size(), IO: r.IO(), Prefetch: r.Prefetchable(), Is: r.Is64()})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("BARs (-want +got):\n%s", diff)
	}
}

func TestParseResourcesEdges(t *testing.T) {
	// A BAR that has no address yet begins at 0, and one of 4 GiB may end where
	// 32 bits do.
	got, err := pci.ParseResources("0x0 0xfff 0x20040200\n0x0 0xffffffff 0x140204\n0x1000 0xfff 0x40200\n")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{4096, 4 << 30, 0} {
		if got[i].Size() != want {
			t.Errorf("BAR %d has %d bytes, want %d", i, got[i].Size(), want)
		}
	}
	if none, err := pci.ParseResources(""); err != nil || none != nil {
		t.Errorf("an empty attribute has resources %v, %v", none, err)
	}
	for _, bad := range []string{"0x0 0x0\n", "0x0 0x0 0x0 0x0\n", "0x0 zero 0x0\n", "\n"} {
		if got, err := pci.ParseResources(bad); err == nil {
			t.Errorf("ParseResources(%q) = %v, want an error", bad, got)
		}
	}
}

func TestUnassigned(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		want bool
	}{
		"memory":                          {"0x00000000c5000000 0x00000000c5ffffff 0x0000000000040200", false},
		"memory marked as unset":          {"0x0000000000000000 0x0000000fffffffff 0x000000002014220c", true},
		"marked, with the old address":    {"0x00000000c5000000 0x00000000c5ffffff 0x0000000020040200", true},
		"marked, of unknown size":         {"0x0000000000000000 0x0000000000000000 0x0000000020040200", true},
		"size without address":            {"0x0000000000000000 0x0000000000ffffff 0x0000000000040200", true},
		"I/O ports":                       {"0x0000000000004000 0x000000000000407f 0x0000000000040101", false},
		"I/O ports marked as unset":       {"0x0000000000000000 0x000000000000007f 0x0000000020040101", true},
		"I/O ports from 0 on":             {"0x0000000000000000 0x000000000000007f 0x0000000000040101", false},
		"none":                            {"0x0000000000000000 0x0000000000000000 0x0000000000000000", false},
		"none, by other words":            {"0x0 0x0 0x0", false},
		"neither memory nor ports, unset": {"0x0000000000000000 0x0000000000000000 0x0000000020000000", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pci.ParseResources(tt.line + "\n")
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Unassigned() != tt.want {
				t.Errorf("%s is unassigned: %t, want %t", tt.line, got[0].Unassigned(), tt.want)
			}
		})
	}
}

func TestParseVFResources(t *testing.T) {
	got, err := pci.ParseVFResources(resource)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []uint64
	for _, r := range got {
		sizes = append(sizes, r.Size())
	}
	if diff := cmp.Diff([]uint64{0, 256 << 20}, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	if got, err := pci.ParseVFResources("0x0 0x0 0x0\n"); err != nil || got != nil {
		t.Errorf("a table of one line has VF BARs %v, %v", got, err)
	}
}

func FuzzParseResources(f *testing.F) {
	f.Add(resource)
	f.Add("0x0 0x0 0x0\n")
	f.Add("0x0 0xffffffffffffffff 0x0\n")
	f.Fuzz(func(t *testing.T, text string) {
		resources, err := pci.ParseResources(text)
		if err == nil && len(resources) > pci.MaxBARs {
			t.Errorf("%d BARs", len(resources))
		}
		for _, r := range resources {
			if r.Start == r.End && r.End > 0 && r.Size() != 1 {
				t.Errorf("%+v has %d bytes", r, r.Size())
			}
		}
	})
}

func TestROM(t *testing.T) {
	bars := strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", pci.MaxBARs)
	for text, want := range map[string]struct{ has, fails bool }{
		bars + "0x00000000f7000000 0x00000000f707ffff 0x0000000000046200\n": {has: true},
		bars + "0x0000000000000000 0x0000000000000000 0x0000000000000000\n": {},
		bars:             {},
		"":               {},
		bars + "0x0\n":   {fails: true},
		bars + "a b c\n": {fails: true},
	} {
		r, has, err := pci.ROM(text)
		if has != want.has || (err != nil) != want.fails {
			t.Errorf("%q: %+v, %t, %v", text, r, has, err)
		}
	}
}
