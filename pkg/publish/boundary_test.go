package publish_test

import (
	"fmt"
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
			all[i].PF.Partition = "CPX/NPS4"
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
