package audit_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func at(bus, dev, fn uint8) pci.Address { return pci.Address{Bus: bus, Device: dev, Function: fn} }

// base is a function of an Intel make below a port, on NUMA node 0.
func base(a pci.Address, class pci.Class, group int, driver string, up ...pci.Address) device.Function {
	return device.Function{
		Address: a, Class: class, Vendor: 0x8086, Device: 0x10c9, VendorName: "Intel Corporation",
		Driver: driver, Root: "pci0000:20", NUMANode: new(0), Group: new(group), Upstream: up,
		ResetMethods: []string{"flr", "bus"},
		Capabilities: pci.Capabilities{Express: &pci.Express{FLR: true}},
		Link:         &device.Link{Speed: "2.5 GT/s PCIe", Width: 4},
	}
}

func port(a pci.Address, group int) device.Function {
	f := base(a, 0x060400, group, "pcieport")
	f.Capabilities.Express.Type = pci.RootPort
	f.Capabilities.ACS = &pci.ACS{Capability: 0x1d, Control: 0x1d}
	f.ResetMethods = nil
	return f
}

// node is a small node with one of each: a PF with a VF, a GPU with a
// companion, a GPU behind a bridge on a host driver, a GPU with a weak reset,
// and a function of the chipset.
func node() *device.Snapshot {
	pf := base(at(0x21, 0, 0), 0x020000, 2, "igb", at(0x20, 0, 0))
	pf.Model = "82576 Gigabit Network Connection"
	pf.PF = &device.PF{TotalVFs: 7, NumVFs: 1, VFs: []pci.Address{at(0x21, 0x10, 0)}}
	pf.Children.Net = []string{"eth0"}
	pf.Uses = []device.Use{{Kind: device.UseAddress, Name: "eth0", Detail: "10.0.0.5/24"}, {Kind: device.UseRoute, Name: "eth0", Detail: "default"}}
	vf := base(at(0x21, 0x10, 0), 0x020000, 3, "igbvf", at(0x20, 0, 0))
	vf.VF = &device.VF{PF: pf.Address}
	vf.Link = nil

	gpu := base(at(0x22, 0, 0), 0x030200, 5, "nvidia", at(0x20, 1, 0))
	gpu.Vendor, gpu.Device, gpu.VendorName = 0x10de, 0x2330, "NVIDIA Corporation"
	gpu.Model = "GH100 [H100 SXM5 80GB] with a name that goes on and on"
	sound := base(at(0x22, 0, 1), 0x040300, 5, "snd_hda_intel", at(0x20, 1, 0))
	sound.Vendor, sound.Device, sound.VendorName, sound.ResetMethods = 0x10de, 0x22ba, "NVIDIA Corporation", nil

	bridge := port(at(0x23, 0, 0), 7)
	bridge.Driver, bridge.Upstream = "shpchp", []pci.Address{at(0x20, 2, 0)}
	bridge.Capabilities = pci.Capabilities{Express: &pci.Express{Type: pci.PCIeToPCI}}
	old := base(at(0x24, 1, 0), 0x030000, 7, "", at(0x20, 2, 0), bridge.Address)
	old.Capabilities.Express, old.NUMANode, old.VendorName = nil, nil, ""
	weak := base(at(0x25, 0, 0), 0x030000, 9, "ast", at(0x20, 3, 0))
	weak.ResetMethods = []string{"pm"}
	chipset := base(at(0x20, 0x1f, 0), 0x088000, 10, "")
	chipset.ResetMethods = nil

	s := &device.Snapshot{
		Functions: []device.Function{
			port(at(0x20, 0, 0), 1), port(at(0x20, 1, 0), 4), port(at(0x20, 2, 0), 6), port(at(0x20, 3, 0), 8), chipset,
			pf, vf, gpu, sound, bridge, old, weak,
		},
		Host: device.Host{Kernel: "6.12.117", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}, IOMMUFD: true},
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	}
	for n := 1; n <= 10; n++ {
		g := device.Group{Number: n, Type: "DMA-FQ"}
		for i := range s.Functions {
			if *s.Functions[i].Group == n {
				g.Members = append(g.Members, s.Functions[i].Address)
			}
		}
		s.Groups = append(s.Groups, g)
	}
	return s
}

func sample() *audit.Inventory { return assess(node()) }

// assess judges a snapshot by the default node config, without records of claims.
func assess(s *device.Snapshot) *audit.Inventory {
	return audit.NewInventory(plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)}, nil)
}
