// Package fleet makes nodes of a simulated cluster for benchmarks: the facts of a node with eight GPUs and eight NICs, as a
// scan would find them, and the ResourceSlices that its plugin would publish.
package fleet

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Rails is the number of a node's GPUs, and of its PFs: each GPU has one at its PCIe switch, and each switch a root of its
// own. The first half is on NUMA node 0, the others on node 1.
const Rails = 8

// Node returns a node whose PFs have vfs VFs each, at most 240. All its functions are healthy and isolated. The config selects
// the functions that are published; nil stands for the default.
func Node(name string, vfs int, config *v1alpha1.NodeConfig) *publish.Node {
	s := &device.Snapshot{Host: device.Host{BootID: "boot", IOMMUs: []string{"dmar0"}, IOMMUFD: true}}
	for i := range Rails {
		s.Functions = append(s.Functions, rail(i, vfs)...)
	}
	slices.SortFunc(s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	n := &publish.Node{Name: name, Snapshot: s, Assessments: map[pci.Address]plan.Assessment{}}
	for i := range s.Functions {
		f := &s.Functions[i]
		f.Group = new(i)
		f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
		s.Groups = append(s.Groups, device.Group{Number: i, Type: "DMA", Members: []pci.Address{f.Address}})
		n.Assessments[f.Address] = plan.Assessment{Isolation: isolation.Judgment{
			Isolated: true, Reset: &isolation.Reset{Method: isolation.FLR, Set: []pci.Address{f.Address}},
		}}
	}
	n.Selection = nodeconfig.Select(config, s)
	return n
}

// rail returns the i-th GPU and PF and the PF's VFs, which have a bus of their own.
func rail(i, vfs int) []device.Function {
	bus := uint8(0x10 * (i + 1))
	gpu := function(i, pci.Address{Bus: bus + 2}, 0x10de, 0x2330, 0x030200)
	gpu.Model, gpu.Driver = "GH100 [H100 SXM5 80GB]", "nvidia"
	gpu.BARs = []device.BAR{
		{Index: 0, Size: 16 << 20}, {Index: 2, Size: 128 << 30, Prefetchable: true, Is64: true}, {Index: 4, Size: 32 << 20, Is64: true},
	}
	pf := function(i, pci.Address{Bus: bus + 3}, 0x15b3, 0x1021, 0x020000)
	pf.Model, pf.Driver = "MT2910 Family [ConnectX-7]", "mlx5_core"
	pf.PF = &device.PF{TotalVFs: max(vfs, 16), NumVFs: vfs}
	all := []device.Function{gpu}
	for v := range vfs {
		vf := function(i, vfAddress(i, v), 0x15b3, 0x101e, 0x020000)
		vf.Model, vf.Driver = "ConnectX Family mlx5Gen Virtual Function", device.GenericVFIO
		vf.VF, vf.Link = &device.VF{PF: pf.Address, Index: v}, nil
		vf.BARs = []device.BAR{{Index: 0, Size: 1 << 20, Prefetchable: true, Is64: true}}
		pf.PF.VFs = append(pf.PF.VFs, vf.Address)
		all = append(all, vf)
	}
	return append(all, pf)
}

// LastVF returns the address of the last VF of the i-th PF, of a node whose PFs have that many.
func LastVF(i, vfs int) string { return vfAddress(i, vfs-1).String() }

func vfAddress(i, v int) pci.Address {
	return pci.Address{Bus: uint8(0x10*(i+1) + 4), Device: uint8(v / 8), Function: uint8(v % 8)}
}

// function returns a function of the i-th rail with what all have.
func function(i int, a pci.Address, vendor, id pci.ID, class pci.Class) device.Function {
	bus := uint8(0x10 * (i + 1))
	return device.Function{
		Address: a, Vendor: vendor, Device: id, Class: class, ResetMethods: []string{"flr", "bus"},
		Root: fmt.Sprintf("pci0000:%02x", bus), Switch: &pci.Address{Bus: bus + 1}, NUMANode: new(i / (Rails / 2)),
		Upstream: []pci.Address{{Bus: bus}, {Bus: bus + 1}},
		Link:     &device.Link{Speed: "32.0 GT/s PCIe", Width: 16, MaxSpeed: "32.0 GT/s PCIe", MaxWidth: 16},
	}
}
