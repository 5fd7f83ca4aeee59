package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func partitionOf(addrs ...pci.Address) *device.Partition {
	p := &device.Partition{}
	for _, a := range addrs {
		p.GPUs = append(p.GPUs, &device.Function{Type: device.GPU, Address: a})
	}
	return p
}

// TestPartitionsNameSaysItsFunctions: a claim's device can be told from its name alone, also for the largest board.
func TestPartitionsNameSaysItsFunctions(t *testing.T) {
	var board []pci.Address
	for bus := range 16 {
		board = append(board, pci.Address{Bus: uint8(0x10 + bus)})
	}
	for want, addrs := range map[string][]pci.Address{
		"gpu-x2-0000-86-87":                                            {{Bus: 0x86}, {Bus: 0x87}},
		"gpu-x2-0001-00-01":                                            {{Domain: 1}, {Domain: 1, Bus: 1}},
		"gpu-x2-0000-86-00-0-0000-87-00-1":                             {{Bus: 0x86}, {Bus: 0x87, Function: 1}},
		"gpu-x2-0000-86-00-0-0001-87-00-0":                             {{Bus: 0x86}, {Domain: 1, Bus: 0x87}},
		"gpu-x8-0000-10-11-12-13-14-15-16-17":                          board[:8],
		"gpu-x16-0000-10-11-12-13-14-15-16-17-18-19-1a-1b-1c-1d-1e-1f": board,
	} {
		p := partitionOf(addrs...)
		if got := p.Name(); got != want || len(validation.IsDNS1123Label(got)) > 0 {
			t.Errorf("got %q, want %q, a DNS label", got, want)
		}
		parts, err := device.ParseParts(want)
		var got []pci.Address
		for _, part := range parts {
			got = append(got, part.Address)
			if part.Type != device.GPU || part.Name != "gpu-"+part.Address.Label() {
				t.Errorf("%s: part %+v", want, part)
			}
		}
		if diff := cmp.Diff(addrs, got); diff != "" || err != nil || device.PartsType(parts) != device.PartitionType {
			t.Errorf("%s: %v (-want +got):\n%s", want, err, diff)
		}
	}
	for i := range board {
		board[i].Function = 1
	}
	if got := partitionOf(board[:8]...).Name(); got != "" {
		t.Errorf("got %q, which is too long for a device name", got)
	}
}

// TestPartitionsHaveOneName each, so that no two devices have the same functions.
func TestPartitionsHaveOneName(t *testing.T) {
	for _, name := range []string{
		"gpu-x2-0000-87-86", "gpu-x2-0000-86-86", "gpu-x1-0000-86", "gpu-x2-0000-86", "gpu-x3-0000-86-87", "gpu-x-0000-86-87", "gpu-x2",
		"gpu-x2-0000-86-00-0-0000-87-00-0", "gpu-x2-0000-86-8z", "gpu-x02-0000-86-87", "gpu-x2-0000-86-87-", "gpu-x2-00000-86-87",
		"gpu-x2-0000-86-87-vf-0000-3c-10-1", "gpu-x2-0000-86-8A",
	} {
		if parts, err := device.ParseParts(name); err == nil {
			t.Errorf("%q was read as %v", name, parts)
		}
	}
}

// TestPartsType tells devices apart by their functions.
func TestPartsType(t *testing.T) {
	for name, want := range map[string]device.Type{
		"gpu-0000-3b-00-0": device.GPU, "vf-0000-3b-00-0": device.VFType, "gpu-0000-3b-00-0-vf-0000-3c-10-1": device.PairType, "gpu-x2-0000-86-87": device.PartitionType,
	} {
		parts, err := device.ParseParts(name)
		if err != nil || device.PartsType(parts) != want {
			t.Errorf("%s: got %s, %v, want %s", name, device.PartsType(parts), err, want)
		}
	}
}
