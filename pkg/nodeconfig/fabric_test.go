package nodeconfig_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// hgx is a node with the GPUs of NVIDIA's example of an H100 board, what Fabric Manager listed, and the captured map.
func hgx(t *testing.T) *device.Snapshot {
	t.Helper()
	s := &device.Snapshot{}
	buses := fabrictest.Buses()
	slices.Sort(buses)
	for _, bus := range buses {
		s.Functions = append(s.Functions, device.Function{
			Address: pci.Address{Bus: bus}, Type: device.GPU, Vendor: pci.VendorNVIDIA, Device: 0x2330, Class: pci.Class3D << 8,
		})
	}
	s.Host.Fabric = device.FabricFacts{
		State:   text(t, fabric.State{Partitions: fabrictest.H100()}),
		Modules: text(t, fabrictest.Map("HGX", fabrictest.Buses()...)),
		Product: "HGX", Driver: "570.172.08",
	}
	return s
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func withFabric(change ...func(*v1alpha1.NodeConfig)) *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{Fabric: &v1alpha1.Fabric{}}
	for _, f := range change {
		f(c)
	}
	c.Default()
	return c
}

func names(partitions []device.Partition) []string {
	var all []string
	for i := range partitions {
		all = append(all, partitions[i].Name())
	}
	return all
}

// TestFabricsPartitions are those of two or more GPUs, by the map and not by the order of addresses.
func TestFabricsPartitions(t *testing.T) {
	f := nodeconfig.Select(withFabric(), hgx(t)).Fabric()
	want := []string{
		"gpu-x2-0000-86-87", "gpu-x2-0000-b8-bb", "gpu-x2-0000-0f-10", "gpu-x2-0000-41-44",
		"gpu-x4-0000-0f-10-41-44", "gpu-x4-0000-86-87-b8-bb", "gpu-x8-0000-0f-10-41-44-86-87-b8-bb",
	}
	if diff := cmp.Diff(want, names(f.Partitions())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.Version != "570.172.08" || f.Why != "" || f.Away != "" {
		t.Errorf("got %+v", f)
	}
	if sel := nodeconfig.Select(nil, hgx(t)); sel.Fabric() != nil || sel.Fabric().Partitions() != nil || sel.Fabric().Has(&hgx(t).Functions[0]) {
		t.Error("a node config without fabric has one")
	}
}

// TestFabricThatIsNotKnown has no partitions, says why, and still has its GPUs.
func TestFabricThatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*device.FabricFacts)
		config func(*v1alpha1.NodeConfig)
		why    string
	}{
		"nobody has asked yet":      {func(f *device.FabricFacts) { f.State = "" }, nil, "Fabric Manager has not listed its partitions yet"},
		"it never answered":         {func(f *device.FabricFacts) { f.State = text(t, fabric.State{Away: "no socket"}) }, nil, "Fabric Manager has not listed its partitions yet"},
		"it lists none":             {func(f *device.FabricFacts) { f.State = text(t, fabric.State{Partitions: fabric.List{}}) }, nil, "Fabric Manager lists no partition"},
		"no map":                    {func(f *device.FabricFacts) { f.Modules = "" }, nil, "no map says which PCI function module 1 is"},
		"a map that can't be read":  {func(f *device.FabricFacts) { f.Modules = "{" }, nil, fabric.MapFile + " can't be read"},
		"a list that can't be read": {func(f *device.FabricFacts) { f.State = "x" }, nil, fabric.StateFile + " can't be read"},
		"another machine":           {func(f *device.FabricFacts) { f.Product = "DGX" }, nil, `the map of modules is of a "HGX", and this machine is a "DGX"`},
		"a list that can't be": {func(f *device.FabricFacts) {
			f.State = text(t, fabric.State{Partitions: fabric.List{fabrictest.Partition(1, 1, 1)}})
		}, nil, "partition 1 has module 1 twice"},
		"a map of the config without such a GPU": {nil, func(c *v1alpha1.NodeConfig) {
			c.Fabric.Modules = []v1alpha1.FabricModule{{Module: new(1), Address: pci.Address{Bus: 1}}}
		}, "the map of modules has module 1 at 0000:01:00.0, where this node has no GPU of NVIDIA"},
	} {
		s := hgx(t)
		if c.change != nil {
			c.change(&s.Host.Fabric)
		}
		config := withFabric()
		if c.config != nil {
			c.config(config)
		}
		sel := nodeconfig.Select(config, s)
		f := sel.Fabric()
		if f.Board != nil || len(f.Partitions()) > 0 || !strings.Contains(f.Why, c.why) || f.Fix == "" {
			t.Errorf("%s: %d partitions, %q, fix %q, want none and %q", name, len(f.Partitions()), f.Why, f.Fix, c.why)
		}
		if problems := sel.Problems(); len(problems) != 1 || !strings.Contains(problems[0].Text, c.why) {
			t.Errorf("%s: problems %v", name, problems)
		}
		if !f.Has(&s.Functions[0]) {
			t.Errorf("%s: the GPUs count as GPUs without a fabric", name)
		}
	}
}

// TestMapOfTheConfigCounts before the captured one.
func TestMapOfTheConfigCounts(t *testing.T) {
	s := hgx(t)
	s.Host.Fabric.Modules = text(t, fabrictest.Map("another", 1, 2, 3))
	f := nodeconfig.Select(withFabric(func(c *v1alpha1.NodeConfig) {
		for i, bus := range fabrictest.Buses() {
			c.Fabric.Modules = append(c.Fabric.Modules, v1alpha1.FabricModule{Module: new(i + 1), Address: pci.Address{Bus: bus}})
		}
	}), s).Fabric()
	if len(f.Partitions()) != 7 {
		t.Errorf("%d partitions, want 7: %s", len(f.Partitions()), f.Why)
	}
}

// TestFabricThatIsAway keeps its partitions.
func TestFabricThatIsAway(t *testing.T) {
	s := hgx(t)
	s.Host.Fabric.State = text(t, fabric.State{Partitions: fabrictest.H100(), Away: "no socket"})
	if f := nodeconfig.Select(withFabric(), s).Fabric(); f.Away != "no socket" || len(f.Partitions()) != 7 {
		t.Errorf("away %q, %d partitions, want 7", f.Away, len(f.Partitions()))
	}
}

// TestPartitionsNeedAllTheirGPUs: one with a GPU that is not ours, or that containers may have, is none.
func TestPartitionsNeedAllTheirGPUs(t *testing.T) {
	third := v1alpha1.DeviceMatch{Addresses: []pci.Address{{Bus: 0x87}}} // module 3
	for name, rule := range map[string]v1alpha1.DeviceRule{
		"excluded": {Match: third, Exclude: true},
		"shared":   {Match: third, SharedWith: "gpu.nvidia.com"},
	} {
		f := nodeconfig.Select(withFabric(func(c *v1alpha1.NodeConfig) {
			c.Devices = []v1alpha1.DeviceRule{rule, {Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}}}
		}), hgx(t)).Fabric()
		want := []string{"gpu-x2-0000-b8-bb", "gpu-x2-0000-0f-10", "gpu-x2-0000-41-44", "gpu-x4-0000-0f-10-41-44"}
		if diff := cmp.Diff(want, names(f.Partitions())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestGPUsOfFabric: GPUs come in the order that keeps halves of the board whole, and one is offered alone only if it has a partition of its own.
func TestGPUsOfFabric(t *testing.T) {
	s := hgx(t)
	l := fabrictest.H100()
	l[3].Active = true // modules 1 and 3
	s.Host.Fabric.State = text(t, fabric.State{Partitions: l[:len(l)-1]})
	s.Functions = append(s.Functions, device.Function{Address: pci.Address{Bus: 0xc0}, Type: device.GPU, Vendor: pci.VendorNVIDIA, Class: pci.ClassVGA << 8})
	f := nodeconfig.Select(withFabric(), s).Fabric()
	at := func(bus uint8) *device.Function {
		fn, ok := s.Function(pci.Address{Bus: bus})
		if !ok {
			t.Fatalf("no function on bus %02x", bus)
		}
		return fn
	}
	buses := fabrictest.Buses()
	slices.SortFunc(buses, func(a, b uint8) int { return f.Position(pci.Address{Bus: a}) - f.Position(pci.Address{Bus: b}) })
	if diff := cmp.Diff([]uint8{0x86, 0x87, 0xb8, 0xbb, 0x0f, 0x10, 0x41, 0x44}, buses); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if f.IsAlone(at(0x44)) || !f.IsAlone(at(0x86)) || !f.IsAlone(at(0xc0)) {
		t.Error("module 8 has no partition of its own, the others have, and a GPU beside the board needs none")
	}
	if f.Has(at(0xc0)) {
		t.Error("a GPU with a monitor is of the fabric")
	}
	if p := f.Active(at(0x87)); p == nil || p.ID != 3 {
		t.Errorf("module 3 is in %v, want 3", p)
	}
	if p := f.Active(at(0xb8)); p != nil {
		t.Errorf("module 2 is in %v, want none", p)
	}
}

// TestGPUsThatFabricManagerLeavesOut are of the fabric still, and are not assigned: a part of the board has failed.
func TestGPUsThatFabricManagerLeavesOut(t *testing.T) {
	s := hgx(t)
	s.Host.Fabric.State = text(t, fabric.State{Partitions: fabric.List{fabrictest.Partition(7, 1)}})
	s.Functions = append(s.Functions, device.Function{Address: pci.Address{Bus: 0xc0}, Type: device.GPU, Vendor: pci.VendorNVIDIA, Device: 0x26b9, Class: pci.Class3D << 8})
	f := nodeconfig.Select(withFabric(), s).Fabric()
	for i := range s.Functions {
		fn := &s.Functions[i]
		listed, beside := fn.Address.Bus == 0x86, fn.Address.Bus == 0xc0
		if f.Has(fn) == beside || f.IsAlone(fn) != (listed || beside) {
			t.Errorf("%s: of the fabric %t, alone %t; want %t and %t", fn.Address, f.Has(fn), f.IsAlone(fn), !beside, listed || beside)
		}
	}
}
