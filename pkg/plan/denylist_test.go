package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// vfOf returns VF 0 of a PF on bus b0, in a group of its own.
func vfOf(vendor, id pci.ID, class pci.Class, driver string) device.Function {
	f := on(pci.Address{Bus: 0xb0, Device: 1}, class, driver, 70)
	f.Vendor, f.Device, f.Capabilities.Header = vendor, id, pci.HeaderNormal
	f.Type = device.Classify(class, pci.HeaderNormal, false, true)
	f.VF = &device.VF{PF: pci.Address{Bus: 0xb0}}
	f.Modalias = fmt.Sprintf("pci:v%08Xd%08Xsv00000000sd00000000bc%02Xsc00i00", uint16(vendor), uint16(id), uint8(class>>16))
	return f
}

// TestVFIOTakesTheFunction refuses what vfio-pci would not take, or what works with its own driver only.
func TestVFIOTakesTheFunction(t *testing.T) {
	const (
		intel pci.ID    = 0x8086
		quick pci.Class = 0x0b4000
	)
	variant := device.Alias{Pattern: "vfio_pci:v00008086d000037C9sv*sd*bc*sc*i*", Module: "qat_vfio_pci"}
	served := mateOf(nvidia, display, "nvidia", 0, 0)
	served.Children.Served = true
	for name, c := range map[string]struct {
		function device.Function
		host     func(*device.Host)
		want     rule.Code // none if the plan is made
	}{
		"QuickAssist VF":                           {function: vfOf(intel, 0x37c9, quick, "c6xxvf"), want: rule.OnVFIODenylist},
		"the same without a driver":                {function: vfOf(intel, 0x37c9, quick, ""), want: rule.OnVFIODenylist},
		"the same on vfio-pci":                     {function: vfOf(intel, 0x37c9, quick, "vfio-pci")},
		"the same, denylist off":                   {function: vfOf(intel, 0x37c9, quick, "c6xxvf"), host: func(h *device.Host) { h.VFIODenylistOff = true }},
		"the same, with a VFIO driver of its own":  {function: vfOf(intel, 0x37c9, quick, "c6xxvf"), host: func(h *device.Host) { h.VFIOAliases = []device.Alias{variant} }},
		"QuickAssist VF that is not on the list":   {function: vfOf(intel, 0x4941, quick, "4xxxvf")},
		"the same id of another vendor":            {function: vfOf(amd, 0x37c9, quick, "")},
		"DSA":                                      {function: vfOf(intel, 0x0b25, 0x088000, "idxd"), want: rule.OnVFIODenylist},
		"vGPU":                                     {function: vfOf(nvidia, 0x2330, display, "nvidia"), want: rule.DriverServesVFIO},
		"VF of an NVIDIA GPU without a driver":     {function: vfOf(nvidia, 0x2330, display, ""), want: rule.DriverServesVFIO},
		"VF of an AMD GPU":                         {function: vfOf(amd, 0x74b5, 0x120000, "")},
		"a driver that has made a VFIO device":     {function: served, want: rule.DriverServesVFIO},
		"a whole NVIDIA GPU with NVIDIA's driver":  {function: mateOf(nvidia, display, "nvidia", 0, 0)},
		"a VF of an NVIDIA NIC on its host driver": {function: vfOf(0x15b3, 0x101e, 0x020000, "mlx5_core")},
	} {
		t.Run(name, func(t *testing.T) {
			functions := []device.Function{c.function}
			if c.function.VF != nil {
				pf := on(c.function.VF.PF, c.function.Class, "host", 69)
				pf.PF = &device.PF{TotalVFs: 8, NumVFs: 1, VFs: []pci.Address{c.function.Address}}
				functions = append(functions, pf)
			}
			s := assemble(functions)
			if c.host != nil {
				c.host(&s.Host)
			}
			n := node(s)
			n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{
				Devices:   []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "gpuvf", "vf", "accelerator", "other"}}}},
				GPUSlices: []v1alpha1.GPUSliceRule{{Match: v1alpha1.GPUMatch{Addresses: []pci.Address{{Bus: 0xb0}}}}},
			}, s)
			req := asking(s, c.function.Address)
			req.Devices[0].VFIO.AllowUnisolated, req.Devices[0].VFIO.Reset = new(true), v1alpha1.ResetSkip
			_, err := plan.Make(req, n)
			refused, _ := errors.AsType[*rule.RefusedError](err)
			if c.want == "" && err != nil || c.want != "" && (refused == nil || !refused.Has(c.want)) {
				t.Errorf("Make = %v; want %q", err, c.want)
			}
		})
	}
}

// TestVFOfNVIDIASaysWhy: what serves VFIO itself needs a vGPU type, and a VF without a VFIO device, such as one for mediated devices, is
// told that these are not supported, whatever the node config names.
func TestVFOfNVIDIASaysWhy(t *testing.T) {
	const mediated, itself = "vgpus as mediated devices (mdev, before linux 6.8) are not supported", "serves vfio itself"
	typed := &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA A10-4Q", Instances: 6}
	for name, c := range map[string]struct {
		driver string
		served bool
		rule   *v1alpha1.NVIDIASlices
		says   string // empty if the plan is made
		never  string
	}{
		"mdev":                                  {driver: "nvidia", says: mediated, never: itself},
		"mdev, and a type in the node config":   {driver: "nvidia", rule: typed, says: mediated, never: itself},
		"no driver":                             {says: mediated, never: itself},
		"vGPU without a type":                   {driver: "nvidia", served: true, says: itself, never: mediated},
		"vGPU with a type, and a VFIO device":   {driver: "nvidia", served: true, rule: typed},
		"another driver that serves VFIO":       {driver: "other", served: true, says: itself, never: mediated},
		"another driver that does not serve it": {driver: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			f := vfOf(nvidia, 0x2236, display, c.driver)
			f.Children.Served = c.served
			pf := on(f.VF.PF, display, "nvidia", 69)
			pf.Vendor, pf.PF = nvidia, &device.PF{TotalVFs: 8, NumVFs: 1, VFs: []pci.Address{f.Address}}
			n := node(assemble([]device.Function{f, pf}))
			n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{
				Devices:   []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpuvf"}}}},
				GPUSlices: []v1alpha1.GPUSliceRule{{Match: v1alpha1.GPUMatch{Addresses: []pci.Address{f.VF.PF}}, NVIDIA: c.rule}},
			}, n.Snapshot)
			req := asking(n.Snapshot, f.Address)
			req.Devices[0].VFIO.AllowUnisolated, req.Devices[0].VFIO.Reset = new(true), v1alpha1.ResetSkip
			_, err := plan.Make(req, n)
			got := ""
			if refused, ok := errors.AsType[*rule.RefusedError](err); ok {
				for _, v := range refused.Verdicts {
					got += strings.ToLower(v.Text + ": " + v.Fix + "\n")
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if (got == "") != (c.says == "") || !strings.Contains(got, c.says) || c.never != "" && strings.Contains(got, c.never) {
				t.Errorf("refused with %q; want %q, and never %q", got, c.says, c.never)
			}
		})
	}
}
