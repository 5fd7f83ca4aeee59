package plan_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestClaimKeepsTheNameOfAFormerType: earlier versions published accelerators as type other, and all VFs as type vf. A claim that was
// allocated by that name is prepared by it, and no name of another type is.
func TestClaimKeepsTheNameOfAFormerType(t *testing.T) {
	for name, c := range map[string]struct {
		vf     device.Function
		former []string
	}{
		"accelerator": {vfOf(0x8086, 0x4941, 0x0b4000, ""), []string{"accelerator", "other", "vf"}},
		"GPU":         {vfOf(0x1002, 0x74b5, 0x120000, ""), []string{"gpuvf", "vf"}},
		"NVMe":        {vfOf(0x144d, 0xa824, 0x010802, ""), []string{"nvme", "vf"}},
		"NIC":         {vfOf(0x8086, 0x1889, 0x020000, ""), []string{"vf"}},
	} {
		n := withPF(c.vf)
		for _, kind := range device.Types() {
			req := asking(n.Snapshot, c.vf.Address)
			req.Devices[0].Name = string(kind) + "-" + c.vf.Address.Label()
			req.Devices[0].VFIO.AllowUnisolated, req.Devices[0].VFIO.Reset = new(true), v1alpha1.ResetSkip
			pl, err := plan.Make(req, n)
			if want := slices.Contains(c.former, string(kind)); want != (err == nil) || !want && rule.Classify(err) != rule.WrongType {
				t.Errorf("%s's VF, claim of %s: %v; is it a name of the device: %t", name, req.Devices[0].Name, err, want)
			}
			if err == nil && pl.Devices[0].Name != req.Devices[0].Name {
				t.Errorf("the plan has %s, want the claim's %s", pl.Devices[0].Name, req.Devices[0].Name)
			}
		}
	}
}

// withPF is a node with a VF and its PF, whose config selects the VF.
func withPF(vf device.Function) plan.Node {
	pf := on(vf.VF.PF, vf.Class, "host", 69)
	pf.PF = &device.PF{TotalVFs: 8, NumVFs: 1, VFs: []pci.Address{vf.Address}}
	n := node(assemble([]device.Function{vf, pf}))
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{
		Devices:   []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{string(vf.Type)}}}},
		GPUSlices: []v1alpha1.GPUSliceRule{{Match: v1alpha1.GPUMatch{Addresses: []pci.Address{vf.VF.PF}}}},
	}, n.Snapshot)
	return n
}

// TestFormerNameTakesNoSettingsOfANIC: a claim has parameters for NICs if its device was a vf by name once. What a GPU's VF can't have is
// refused, and what says nothing about it is left out.
func TestFormerNameTakesNoSettingsOfANIC(t *testing.T) {
	vf := vfOf(0x1002, 0x74b5, 0x120000, "")
	for name, c := range map[string]struct {
		config v1alpha1.VFConfig
		want   rule.Code
	}{
		"nothing said":  {v1alpha1.VFConfig{}, ""},
		"untagged":      {v1alpha1.VFConfig{AllowUntagged: new(true)}, ""},
		"an address":    {v1alpha1.VFConfig{MAC: "02:00:5e:10:00:01"}, rule.UnsupportedSetting},
		"a VLAN":        {v1alpha1.VFConfig{VLAN: new(100)}, rule.UnsupportedSetting},
		"a network":     {v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{}}, rule.UnsupportedSetting},
		"as Kata's NIC": {v1alpha1.VFConfig{Attachment: v1alpha1.AttachPhysicalEndpoint}, rule.UnsupportedSetting},
	} {
		n := withPF(vf)
		req := asking(n.Snapshot, vf.Address)
		req.Devices[0].Name = "vf-" + vf.Address.Label()
		req.Devices[0].VFIO.AllowUnisolated, req.Devices[0].VFIO.Reset, req.Devices[0].VF = new(true), v1alpha1.ResetSkip, &c.config
		pl, err := plan.Make(req, n)
		if got := rule.Classify(err); err != nil && got != c.want || err == nil && c.want != "" {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && pl.Functions[0].VF != nil {
			t.Errorf("%s: the PF is to set %s", name, pl.Functions[0].VF.Want.String())
		}
	}
}
