package publish_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func addr(t testing.TB, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// everything is a config by which all that may be taken is ours.
func everything() *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{
		Devices: []v1alpha1.DeviceRule{
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "pf", "vf", "gpuvf", "nvme", "accelerator", "other"}}},
		},
		GPUSlices: []v1alpha1.GPUSliceRule{{Match: v1alpha1.GPUMatch{Vendors: []pci.ID{0x1002, 0x10de, 0x8086}}}},
	}
}

// nodeOf returns a node of the functions where each is in the group that its
// Group field says, isolated, and everything is ours.
func nodeOf(functions ...device.Function) *publish.Node {
	slices.SortFunc(functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	s := &device.Snapshot{Functions: functions, Host: device.Host{IOMMUFD: true}}
	assessments := map[pci.Address]plan.Assessment{}
	groups := map[int]*device.Group{}
	for i := range functions {
		f := &functions[i]
		f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
		assessments[f.Address] = plan.Assessment{Isolation: isolation.Judgment{Isolated: true, Reset: &isolation.Reset{Method: isolation.FLR, Set: []pci.Address{f.Address}}}}
		if f.Group == nil {
			continue
		}
		g := groups[*f.Group]
		if g == nil {
			g = &device.Group{Number: *f.Group, Type: "DMA"}
			groups[*f.Group] = g
		}
		g.Members = append(g.Members, f.Address)
	}
	for _, g := range groups {
		s.Groups = append(s.Groups, *g)
	}
	slices.SortFunc(s.Groups, func(a, b device.Group) int { return a.Number - b.Number })
	n := &publish.Node{Name: "worker-1", Snapshot: s, Assessments: assessments, Health: map[pci.Address]publish.Health{}}
	choose(n, everything())
	return n
}

// choose applies another config to the node.
func choose(n *publish.Node, cfg *v1alpha1.NodeConfig) {
	n.Selection = nodeconfig.Select(cfg, n.Snapshot)
}

// function returns a function with the facts that the kernel always states.
func function(t testing.TB, a string, class pci.Class, group int) device.Function {
	t.Helper()
	return device.Function{
		Address: addr(t, a), Class: class, Vendor: 0x8086, Device: 0x10c9, Group: new(group),
		Root: "pci" + a[:len(a)-5], NUMANode: new(0),
	}
}

// sound is the audio function of a GPU.
func sound(t testing.TB, a string, group int) device.Function {
	t.Helper()
	f := function(t, a, audio, group)
	f.Vendor = 0x10de
	return f
}

// classes of the functions in these tests.
const (
	gpu3D  pci.Class = 0x030200
	audio  pci.Class = 0x040300
	nic    pci.Class = 0x020000
	nvme   pci.Class = 0x010802
	crypto pci.Class = 0x0b4000
	bridge pci.Class = 0x060400
)

// pfWith returns a NIC with SR-IOV and its first VFs, each in a group of its own.
func pfWith(t testing.TB, a string, total, enabled, group int) []device.Function {
	t.Helper()
	pf := function(t, a, nic, group)
	pf.Driver = "igb"
	pf.PF = &device.PF{TotalVFs: total, NumVFs: enabled}
	all := []device.Function{pf}
	for i := range enabled {
		vf := function(t, a, nic, group+1+i)
		vf.Address.Device, vf.Address.Function = uint8(0x10+i/8), uint8(i%8)
		vf.VF = &device.VF{PF: pf.Address, Index: i}
		all = append(all, vf)
	}
	return all
}

// hopper is a GPU with every fact that there may be.
func hopper(t testing.TB, a string, group int) device.Function {
	t.Helper()
	f := function(t, a, gpu3D, group)
	f.Vendor, f.Device, f.Driver = 0x10de, 0x2330, "nvidia"
	f.Model = "GH100 [H100 SXM5 80GB]"
	f.NUMANode, f.Switch = new(1), new(addr(t, "0000:39:00.0"))
	f.Link = &device.Link{Speed: "2.5 GT/s PCIe", Width: 16, MaxSpeed: "32.0 GT/s PCIe", MaxWidth: 16}
	f.BARs = []device.BAR{{Index: 0, Size: 16 << 20}, {Index: 2, Size: 128 << 30, Prefetchable: true, Is64: true}, {Index: 5, Size: 128, IO: true}}
	return f
}

// blemish gives the function a verdict with a reason of the severity.
func blemish(n *publish.Node, a pci.Address, code rule.Code, severity rule.Severity) {
	n.Assessments[a] = plan.Assessment{
		Isolation: isolation.Judgment{Reasons: []rule.Verdict{{Code: code, Severity: severity, Text: "it is so."}}},
		Refusals:  []rule.Verdict{{Code: rule.NotIsolated, Text: "it is so"}},
	}
}

const tenantID = "0123456789abcdef"

// refuse adds refusals to the judgment on the function.
func refuse(n *publish.Node, a pci.Address, codes ...rule.Code) {
	as := n.Assessments[a]
	for _, code := range codes {
		r := rule.Verdict{Code: code, Text: "it is so"}
		if code == rule.NodeNotReady {
			r.Obstacle = rule.DiskFull
		}
		if code == rule.NotSanitized {
			r.Object = "memory"
		}
		if code == rule.DomainOfOtherTenant {
			r.Object = tenantID
		}
		as.Refusals = append(as.Refusals, r)
	}
	n.Assessments[a] = as
}

// names returns the names of a pool's devices in order.
func names(p publish.Pool) []string {
	var all []string
	for _, s := range p.Slices {
		for _, d := range s.Devices {
			all = append(all, d.Name)
		}
	}
	return all
}
