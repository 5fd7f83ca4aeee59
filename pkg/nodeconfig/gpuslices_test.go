package nodeconfig_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	codes "github.com/kata-vfio/kata-vfio/pkg/rule"
)

// slicedNode has an AMD GPU with one VF, and a NIC with one.
func slicedNode(t *testing.T) (s *device.Snapshot, gpuVF, nicVF pci.Address) {
	t.Helper()
	add := func(at string, vendor, id pci.ID, class pci.Class, pf string) {
		f := device.Function{Address: addr(t, at), Vendor: vendor, Device: id, Class: class}
		if pf == "" {
			f.PF = &device.PF{TotalVFs: 8, NumVFs: 1}
		} else {
			f.VF = &device.VF{PF: addr(t, pf)}
		}
		f.Type = device.Classify(class, pci.HeaderNormal, f.PF != nil, f.VF != nil)
		s.Functions = append(s.Functions, f)
	}
	s = &device.Snapshot{}
	add("0000:13:00.0", 0x1002, 0x74a1, 0x120000, "")
	add("0000:13:02.0", 0x1002, 0x74b5, 0x120000, "0000:13:00.0")
	add("0000:5e:00.0", 0x8086, 0x158b, 0x020000, "")
	add("0000:5e:02.0", 0x8086, 0x154c, 0x020000, "0000:5e:00.0")
	return s, addr(t, "0000:13:02.0"), addr(t, "0000:5e:02.0")
}

// TestGPUIsNeverSlicedByDefault: whatever rule selects the VF of a GPU, another one must name the GPU.
func TestGPUIsNeverSlicedByDefault(t *testing.T) {
	gpu := addr(t, "0000:13:00.0")
	slice := func(m v1alpha1.GPUMatch) []v1alpha1.GPUSliceRule {
		return []v1alpha1.GPUSliceRule{{Name: "amd", Match: m}}
	}
	byType := []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpuvf", "vf"}}}}
	for name, c := range map[string]struct {
		cfg      *v1alpha1.NodeConfig
		want     codes.Code // empty if it is ours
		problems string
	}{
		"no config":              {nil, codes.NotOurs, ""},
		"selected by its type":   {&v1alpha1.NodeConfig{Devices: byType}, codes.GPUNotSliced, ""},
		"selected by its vendor": {&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x1002, 0x8086}}}}}, codes.GPUNotSliced, "rule 1 matches 0000:13:00.0, which must not be taken"},
		"its GPU by vendor":      {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: slice(v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002}})}, "", ""},
		"its GPU by ids":         {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: slice(v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002}, Devices: []pci.ID{0x74a1}})}, "", ""},
		"its GPU by address":     {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: slice(v1alpha1.GPUMatch{Addresses: []pci.Address{gpu}})}, "", ""},
		"another GPU":            {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: slice(v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002}, Devices: []pci.ID{0x74a5}})}, codes.GPUNotSliced, "gpuSlices rule 1 (amd) matches no GPU of this node"},
		"a NIC":                  {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: slice(v1alpha1.GPUMatch{Vendors: []pci.ID{0x8086}})}, codes.GPUNotSliced, "gpuSlices rule 1 (amd) matches no GPU of this node"},
		"another vendor's settings": {&v1alpha1.NodeConfig{Devices: byType, GPUSlices: []v1alpha1.GPUSliceRule{{
			Match: v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002}}, Intel: &v1alpha1.IntelSlices{},
		}}}, "", "gpuSlices rule 1 has intel, and matches no GPU of Intel"},
		"no rule for the VF": {&v1alpha1.NodeConfig{GPUSlices: slice(v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002}})}, codes.NotOurs, ""},
	} {
		s, gpuVF, nicVF := slicedNode(t)
		sel := nodeconfig.Select(c.cfg, s)
		choice := sel.Choice(gpuVF)
		if got := choice.Against(); got != c.want || choice.Ours != (c.want == "") {
			t.Errorf("%s: %+v, want %q", name, choice, c.want)
		}
		if c.want == codes.GPUNotSliced && !strings.Contains(choice.Why, "slice of GPU 0000:13:00.0") {
			t.Errorf("%s: why is %q, want it to name the GPU", name, choice.Why)
		}
		if nic := sel.Choice(nicVF); !nic.Ours {
			t.Errorf("%s: the NIC's VF is left out: %+v", name, nic)
		}
		var problems []string
		for _, p := range sel.Problems() {
			problems = append(problems, p.Text)
		}
		if got := strings.Join(problems, "; "); !strings.Contains(got, c.problems) || c.problems == "" && got != "" {
			t.Errorf("%s: problems %q, want %q", name, got, c.problems)
		}
	}
}

// TestPFThatStaysOnHost: no rule selects it, also if the rule names its address.
func TestPFThatStaysOnHost(t *testing.T) {
	s, _, _ := slicedNode(t)
	gpu, _ := s.Function(addr(t, "0000:13:00.0"))
	gpu.PF.NumVFs, gpu.Driver = 0, "gim"
	choice := nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{gpu.Address}}}}}, s).Choice(gpu.Address)
	if choice.Ours || !choice.Forbidden || choice.Against() != codes.PFStaysOnHost || !strings.Contains(choice.Why, "gim") {
		t.Errorf("a PF on gim: %+v, want %s", choice, codes.PFStaysOnHost)
	}
	gpu.Driver = "amdgpu"
	if choice = nodeconfig.Select(nil, s).Choice(gpu.Address); !choice.Ours {
		t.Errorf("the same on amdgpu: %+v, want it selected", choice)
	}
}
