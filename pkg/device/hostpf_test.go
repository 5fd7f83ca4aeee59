package device_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestPFStaysOnHost(t *testing.T) {
	const amd, intel pci.ID = 0x1002, 0x8086
	for name, c := range map[string]struct {
		f    device.Function
		want string // empty if it may leave its driver
	}{
		"AMD's GPU on gim":                  {device.Function{Vendor: amd, Device: 0x74a1, Driver: "gim", PF: &device.PF{}}, "gim"},
		"the same with VFs":                 {device.Function{Vendor: amd, Device: 0x74a1, Driver: "gim", PF: &device.PF{NumVFs: 8}}, "gim"},
		"its VF":                            {device.Function{Vendor: amd, Device: 0x74b5, Driver: "gim", VF: &device.VF{}}, ""},
		"AMD's GPU on amdgpu":               {device.Function{Vendor: amd, Device: 0x74a1, Driver: "amdgpu", PF: &device.PF{}}, ""},
		"QuickAssist 4xxx":                  {device.Function{Vendor: intel, Device: 0x4940, Driver: "4xxx", PF: &device.PF{}}, "QuickAssist"},
		"QuickAssist 6xxx without a driver": {device.Function{Vendor: intel, Device: 0x4948}, "QuickAssist"},
		"QuickAssist C62x":                  {device.Function{Vendor: intel, Device: 0x37c8, PF: &device.PF{}}, "QuickAssist"},
		"its VF with an id of its own":      {device.Function{Vendor: intel, Device: 0x4941, VF: &device.VF{}}, ""},
		"the id of another vendor":          {device.Function{Vendor: amd, Device: 0x4940}, ""},
		"Intel's GPU on xe with VFs":        {device.Function{Vendor: intel, Device: 0x56c0, Driver: "xe", PF: &device.PF{NumVFs: 7}}, "shares it among its VFs"},
		"Intel's GPU on xe without VFs":     {device.Function{Vendor: intel, Device: 0x56c0, Driver: "xe", PF: &device.PF{}}, ""},
		"Intel's GPU on xe without SR-IOV":  {device.Function{Vendor: intel, Device: 0x56c0, Driver: "xe"}, ""},
		"NIC with VFs, which others refuse": {device.Function{Vendor: intel, Device: 0x158b, Driver: "i40e", PF: &device.PF{NumVFs: 7}}, ""},
	} {
		got := c.f.StaysOnHost()
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
