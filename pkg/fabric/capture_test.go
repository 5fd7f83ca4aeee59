package fabric_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestParseModules reads the parts of `nvidia-smi -q` that matter, and takes nothing from the sections within a GPU's.
func TestParseModules(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidia-smi.txt")
	if err != nil {
		t.Fatal(err)
	}
	got, err := fabric.ParseModules(string(text))
	want := []fabric.Place{
		{Module: 4, Address: pci.Address{Bus: 0xad}, UUID: "GPU-806f8ea2-6428-1096-a076-bb687fb45fb0"},
		{Module: 1, Address: pci.Address{Domain: 1, Bus: 0x0f}, UUID: "GPU-35d58415-1094-5ad1-64d1-b797587d33a7"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for old, wrong := range map[string][2]string{
		"Module ID                             : 4":       {"Module ID                             : N/A", `GPU 0000:ad:00.0 has Module ID "N/A"`},
		"    Module ID                             : 1\n": {"", "GPU 0001:0f:00.0 has no Module ID"},
		"    Module ID                             : 4\n": {"", "GPU 0000:ad:00.0 has no Module ID"},
		"GPU 00000000:AD:00.0":                            {"GPU zero", `the section "GPU zero" has no PCI address`},
	} {
		changed := strings.Replace(string(text), old, wrong[0], 1)
		if _, err := fabric.ParseModules(changed); changed == string(text) || err == nil || !strings.Contains(err.Error(), wrong[1]) {
			t.Errorf("got %v, want %q", err, wrong[1])
		}
	}
	if _, err := fabric.ParseModules("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"); err == nil {
		t.Error("got no error without a GPU")
	}
}
