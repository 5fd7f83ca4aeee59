package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestRDMADoesNotComeAndGoWithAVFsDriver: claims select by it.
func TestRDMADoesNotComeAndGoWithAVFsDriver(t *testing.T) {
	functions := append(pfWith(t, "0000:5e:00.0", 7, 3, 10), pfWith(t, "0000:81:00.0", 7, 1, 30)...)
	n := nodeOf(functions...)
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		switch f.Address {
		case addr(t, "0000:5e:00.0"):
			f.Children.RDMA = []string{"mlx5_0"}
		case addr(t, "0000:5e:10.0"):
			f.Driver, f.Children.RDMA = "mlx5_core", []string{"mlx5_1"}
		case addr(t, "0000:5e:10.1"):
			f.Driver = "vfio-pci"
		}
	}
	got := map[string]bool{}
	for _, p := range publish.Pools(n) {
		for _, s := range p.Slices {
			for _, d := range s.Devices {
				rdma := d.Attributes[publish.AttrRDMA].BoolValue
				got[d.Name] = rdma != nil && *rdma
			}
		}
	}
	want := map[string]bool{"vf-0000-5e-10-0": true, "vf-0000-5e-10-1": true, "vf-0000-5e-10-2": true, "vf-0000-81-10-0": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rdma (-want +got):\n%s", diff)
	}
}

// newAttributes returns the attributes and the capacity of each published device.
func attributesOf(n *publish.Node) map[string]resourceapi.Device {
	all := map[string]resourceapi.Device{}
	for _, p := range publish.Pools(n) {
		for _, s := range p.Slices {
			for _, d := range s.Devices {
				all[d.Name] = d
			}
		}
	}
	return all
}

func TestVFsHaveTheirPFsPortAndTheirRulesName(t *testing.T) {
	n := nodeOf(pfWith(t, "0000:5e:00.0", 7, 1, 10)...)
	pf := &n.Snapshot.Functions[0]
	pf.Children.Net, pf.PortSpeed, pf.VendorName = []string{"ens5f0"}, 25000, "Intel Corporation"
	choose(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Name: "storage", Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}}}})
	vf := attributesOf(n)["vf-0000-5e-10-0"].Attributes
	got := []string{*vf[publish.AttrPFInterface].StringValue, *vf[publish.AttrRule].StringValue}
	if diff := cmp.Diff([]string{"ens5f0", "storage"}, got); diff != "" || *vf[publish.AttrPortSpeed].IntValue != 25000 {
		t.Errorf("port speed %d, interface and rule (-want +got):\n%s", *vf[publish.AttrPortSpeed].IntValue, diff)
	}
	pf.PortSpeed = 0
	if speed, ok := attributesOf(n)["vf-0000-5e-10-0"].Attributes[publish.AttrPortSpeed]; ok {
		t.Errorf("without a link the port speed is %v, want none", speed)
	}
}

// Go's maps have groups of 8 entries, and double when they are seven eighths full.
func TestFewVFAttributesFitSmallMaps(t *testing.T) {
	n := nodeOf(append(pfWith(t, "0000:5e:00.0", 7, 1, 10), hopper(t, "0000:1a:00.0", 1))...)
	all := attributesOf(n)
	const gpu, vf = "gpu-0000-1a-00-0", "vf-0000-5e-10-0"
	for level, most := range map[v1alpha1.VFAttributes]int{v1alpha1.VFAttributesSelection: 14, v1alpha1.VFAttributesMinimal: 8} {
		choose(n, &v1alpha1.NodeConfig{VFAttributes: level})
		few := attributesOf(n)
		if diff := cmp.Diff(all[gpu], few[gpu]); diff != "" {
			t.Errorf("the GPU changes (-want as with All +got with %s):\n%s", level, diff)
		}
		if n := len(few[vf].Attributes); n > most || n >= len(all[vf].Attributes) || len(few[vf].Capacity) != 0 {
			t.Errorf("%s: the VF has %d attributes and %d capacities, want at most %d attributes, fewer than the %d of All, and no capacity", level, n, len(few[vf].Capacity), most, len(all[vf].Attributes))
		}
		for _, name := range []resourceapi.QualifiedName{publish.AttrType, publish.AttrPCIBusID, publish.AttrPCIeSwitch, publish.AttrIsolated} {
			got, ok := few[vf].Attributes[name]
			if diff := cmp.Diff(all[vf].Attributes[name], got); diff != "" || !ok {
				t.Errorf("%s (-want as with All +got with %s):\n%s", name, level, diff)
			}
		}
	}
}

func TestGPUMemoryIsACapacityAndSaysItsSource(t *testing.T) {
	known, other := hopper(t, "0000:1a:00.0", 1), hopper(t, "0000:1b:00.0", 2)
	other.Device, other.VendorName = 0xffff, "NVIDIA Corporation"
	all := attributesOf(nodeOf(known, other))
	for name, want := range map[string][2]string{"gpu-0000-1a-00-0": {"80Gi", "model"}, "gpu-0000-1b-00-0": {"128Gi", "bar"}} {
		d := all[name]
		size, source := d.Capacity[publish.CapacityMemory].Value, d.Attributes[publish.AttrMemorySource].StringValue
		if size.String() != want[0] || source == nil || *source != want[1] {
			t.Errorf("%s has %s by %v, want %v", name, size.String(), source, want)
		}
	}
	if vendor := all["gpu-0000-1b-00-0"].Attributes[publish.AttrVendorName].StringValue; vendor == nil || *vendor != "NVIDIA Corporation" {
		t.Errorf("vendor name is %v, want NVIDIA Corporation", vendor)
	}
}
