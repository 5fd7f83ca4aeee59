package publish_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// slicedNode has a GPU, two AMD GPUs with a VF each of 8 and 12, a NIC with a VF, and the VF of an accelerator.
func slicedNode(t *testing.T) *publish.Node {
	t.Helper()
	all := append(pfWith(t, "0000:5e:00.0", 7, 1, 10), hopper(t, "0000:3b:00.0", 1))
	sliced := func(bus string, id pci.ID, class pci.Class, vfs, group int) {
		pf, vf := function(t, "0000:"+bus+":00.1", class, group), function(t, "0000:"+bus+":02.0", class, group+1)
		pf.Vendor, pf.Device, pf.PF = 0x1002, id, &device.PF{TotalVFs: 16, NumVFs: vfs}
		vf.Vendor, vf.VF = 0x1002, &device.VF{PF: pf.Address}
		vf.BARs = []device.BAR{{Index: 0, Size: 1 << 34, Prefetchable: true, Is64: true}}
		all = append(all, pf, vf)
	}
	sliced("13", 0x74a1, 0x120000, 8, 20)
	sliced("14", 0x7460, 0x038000, 12, 22)
	sliced("15", 0x1234, crypto, 4, 24)
	for i := range all {
		if all[i].PF != nil && all[i].Device == 0x74a1 {
			all[i].Driver, all[i].PF.Partition = "gim", "CPX/NPS4"
		}
	}
	return nodeOf(all...)
}

func TestBoundaryAndCardOfEachDevice(t *testing.T) {
	n := slicedNode(t)
	text := func(d resourceapi.Device, name resourceapi.QualifiedName) string {
		if v := d.Attributes[name].StringValue; v != nil {
			return *v
		}
		return "-"
	}
	want := map[string][4]string{
		"gpu-0000-3b-00-0":   {"device", "0000:3b:00.0", "80Gi", "-"},
		"gpuvf-0000-13-02-0": {"hardwareSlice", "0000:13:00.0", "24Gi", "CPX/NPS4"}, "gpuvf-0000-14-02-0": {"scheduler", "0000:14:00.0", "0", "-"},
		"accelerator-0000-15-02-0": {"scheduler", "0000:15:00.0", "0", "-"}, "vf-0000-5e-10-0": {"scheduler", "0000:5e:00.0", "0", "-"},
	}
	got := map[string][4]string{}
	for name, d := range attributesOf(n) {
		memory := d.Capacity[publish.CapacityMemory].Value
		got[name] = [4]string{text(d, publish.AttrBoundary), text(d, publish.AttrCard), memory.String(), text(d, publish.AttrProfile)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("boundary, card, memory and profile (-want +got):\n%s", diff)
	}
	config := everything()
	config.VFAttributes = v1alpha1.VFAttributesMinimal
	choose(n, config)
	for name, d := range attributesOf(n) {
		if text(d, publish.AttrBoundary) != want[name][0] && name != "vf-0000-5e-10-0" {
			t.Errorf("with few attributes of VFs, %s has boundary %s, want %s", name, text(d, publish.AttrBoundary), want[name][0])
		}
	}
}

// TestRequestForABoundary gets such a device, and a request for a GPU never gets a slice of one.
func TestRequestForABoundary(t *testing.T) {
	pools := publish.Pools(slicedNode(t))
	for asked, want := range map[[2]string]string{
		{"gpu", ""}: "gpu-0000-3b-00-0", {"gpu", "device"}: "gpu-0000-3b-00-0", {"gpu", "hardwareSlice"}: "", {"gpu", "scheduler"}: "",
		{"gpuvf", "hardwareSlice"}: "gpuvf-0000-13-02-0", {"gpuvf", "scheduler"}: "gpuvf-0000-14-02-0", {"gpuvf", "device"}: "",
		{"vf", "device"}: "", {"accelerator", "scheduler"}: "accelerator-0000-15-02-0",
	} {
		c := claimFor(asked[0])
		if asked[1] != "" {
			c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf(`device.attributes["kata-vfio.dev"].?boundary.orValue("") == %q`, asked[1]),
			}}}
		}
		if got := strings.Join(allocate(t, pools, nil, c), ","); got != want {
			t.Errorf("type %s with boundary %q: got %q, want %q", asked[0], asked[1], got, want)
		}
	}
}

// TestDeviceWithTooMuchLosesBARs: one device with more than the API server takes would cost the node its slice.
func TestDeviceWithTooMuchLosesBARs(t *testing.T) {
	f := worst(t)
	f.Class, f.VF = gpu3D, nil
	f.PortSpeed, f.Children.Net, f.Children.RDMA = 25000, []string{"ens1"}, []string{"mlx5_0"}
	f.VendorName, f.Link = "NVIDIA Corporation", &device.Link{MaxSpeed: "32.0 GT/s PCIe"}
	n := nodeOf(f)
	checkPools(t, publish.Pools(n))
	d := attributesOf(n)["gpu-ffffffff-ff-1f-7"]
	if _, ok := d.Capacity[publish.CapacityMemory]; !ok {
		t.Errorf("capacities %v, want the memory among them", d.Capacity)
	}
}

// vfsOf returns a GPU and its VFs, each in a group of its own.
func vfsOf(t *testing.T, bus int, vendor, id pci.ID, class pci.Class, vfs int) []device.Function {
	t.Helper()
	pf := function(t, fmt.Sprintf("0000:%02x:00.0", bus), class, 10*bus)
	pf.Vendor, pf.Device, pf.PF = vendor, id, &device.PF{TotalVFs: vfs, NumVFs: vfs}
	all := []device.Function{pf}
	for i := range vfs {
		vf := function(t, fmt.Sprintf("0000:%02x:02.%d", bus, i), class, 10*bus+i+1)
		vf.Vendor, vf.VF = vendor, &device.VF{PF: pf.Address, Index: i}
		vf.BARs = []device.BAR{{Index: 0, Size: 1 << 34, Prefetchable: true, Is64: true}}
		all = append(all, vf)
	}
	return all
}

// TestSlicesSayWhatTheRuleMakesOfThem: the memory of an Intel GPU's VFs, and type and memory of as many VFs of an NVIDIA GPU as it has
// vGPUs.
func TestSlicesSayWhatTheRuleMakesOfThem(t *testing.T) {
	n := nodeOf(append(vfsOf(t, 0x16, 0x8086, 0xe211, 0x030000, 2), vfsOf(t, 0x17, 0x10de, 0x26b9, 0x030200, 4)...)...)
	config := everything()
	config.GPUSlices[0].Intel = &v1alpha1.IntelSlices{MemoryMiB: new(4096)}
	config.GPUSlices[0].NVIDIA = &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA L40S-12Q", Instances: 2}
	choose(n, config)
	type said struct{ Profile, Memory, Boundary, Card string }
	intel := said{"-", "4Gi", "scheduler", "0000:16:00.0"}
	nvidia := said{"NVIDIA L40S-12Q", "12Gi", "scheduler", "0000:17:00.0"}
	want := map[string]said{
		"gpuvf-0000-16-02-0": intel, "gpuvf-0000-16-02-1": intel,
		"gpuvf-0000-17-02-0": nvidia, "gpuvf-0000-17-02-1": nvidia, // of four VFs
	}
	got := map[string]said{}
	for name, d := range attributesOf(n) {
		text := func(attribute resourceapi.QualifiedName) string {
			if v := d.Attributes[attribute].StringValue; v != nil {
				return *v
			}
			return "-"
		}
		memory := d.Capacity[publish.CapacityMemory].Value
		if strings.HasPrefix(name, "gpuvf-") {
			got[name] = said{text(publish.AttrProfile), memory.String(), text(publish.AttrBoundary), text(publish.AttrCard)}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slices (-want +got):\n%s", diff)
	}
}

// TestAllSlicesOfOneCard: a claim gets the 8 VFs of one MI300X, by their number or as all that there are, and never those of two cards.
func TestAllSlicesOfOneCard(t *testing.T) {
	card := resourceapi.FullyQualifiedName("kata-vfio.dev/card")
	claim := func(count int64) *resourceapi.ResourceClaim {
		c := claimFor("gpuvf")
		c.Spec.Devices.Requests[0].Exactly.Count = count
		if count == 0 {
			c.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
		}
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &card}}
		return c
	}
	one := vfsOf(t, 0x13, 0x1002, 0x74a1, 0x120000, 8)
	two := append(slices.Clone(one), vfsOf(t, 0x14, 0x1002, 0x74a1, 0x120000, 8)...)
	for name, c := range map[string]struct {
		functions []device.Function
		count     int64 // 0 for all
		want      int
	}{
		"8 of one card":         {one, 8, 8},
		"9 of one card":         {one, 9, 0},
		"all of one card":       {one, 0, 8},
		"8 of one of two cards": {two, 8, 8},
		"9 of two cards":        {two, 9, 0},
	} {
		got := allocate(t, publish.Pools(nodeOf(slices.Clone(c.functions)...)), nil, claim(c.count))
		cards := map[string]bool{}
		for _, d := range got {
			cards[strings.TrimPrefix(d, "gpuvf-")[:7]] = true
		}
		if len(got) != c.want || len(cards) > 1 {
			t.Errorf("%s: got %q, want %d of one card", name, got, c.want)
		}
	}
}
