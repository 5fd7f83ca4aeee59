package plan_test

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Addresses of the node that the tests plan on.
var (
	gpuAddr   = pci.Address{Bus: 0x3b}              // alone in group 10
	audioGPU  = pci.Address{Bus: 0x62}              // with audio in group 15
	audio     = pci.Address{Bus: 0x62, Function: 1} //
	splitGPU  = pci.Address{Bus: 0x70}              // group 20, its USB in group 21
	splitUSB  = pci.Address{Bus: 0x70, Function: 1} //
	bridged   = pci.Address{Bus: 0x80, Device: 1}   // group 30 with a bridge on shpchp
	bridge    = pci.Address{Bus: 0x7f}              //
	nic       = pci.Address{Bus: 0x21}              // a PF, group 40
	nicVF     = pci.Address{Bus: 0x21, Device: 0x10}
	hostVGA   = pci.Address{Bus: 0x04} // drives the console
	noReset   = pci.Address{Bus: 0x90}
	deadGPU   = pci.Address{Bus: 0x91}
	boundGPU  = pci.Address{Bus: 0x92} // on vfio-pci already
	emptyGPU  = pci.Address{Bus: 0x93} // no driver
	looseGPU  = pci.Address{Bus: 0x94} // no IOMMU group
	variantGP = pci.Address{Bus: 0x95}
)

// on returns a function with what planning looks at.
func on(a pci.Address, class pci.Class, driver string, group int) device.Function {
	f := device.Function{
		Address: a, Vendor: 0x10de, Device: 0x2330, Class: class, Driver: driver, Group: &group,
		Type: device.Classify(class, "", false, false), Root: "pci0000:00", ResetMethods: []string{"flr", "bus"},
		Modalias:     "pci:v000010DEd00002330sv00000000sd00000000bc03sc02i00",
		Upstream:     []pci.Address{{Device: a.Bus % 32, Function: a.Bus / 32}}, // a root port for each bus
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint, FLR: true}},
	}
	return f
}

func fixture() *device.Snapshot {
	const display, sound, usb, net = 0x030200, 0x040300, 0x0c0330, 0x020000
	vf := on(nicVF, net, "igbvf", 41)
	vf.VF, vf.Type = &device.VF{PF: nic}, device.VFType
	pf := on(nic, net, "igb", 40)
	pf.PF = &device.PF{TotalVFs: 7, NumVFs: 1, VFs: []pci.Address{nicVF}}
	pf.Children.Net = []string{"eth0"}
	vga := on(hostVGA, 0x030000, "bochs-drm", 5)
	vga.Uses = []device.Use{{Kind: device.UseConsole, Name: "card0"}}
	br := on(bridge, 0x060400, "shpchp", 30)
	br.Capabilities.Express = &pci.Express{Type: pci.PCIeToPCI}
	weak := on(noReset, display, "nvidia", 50)
	weak.ResetMethods = nil
	dead := on(deadGPU, display, "nvidia", 51)
	dead.ConfigDead = true
	bound := on(boundGPU, display, "vfio-pci", 52)
	loose := on(looseGPU, display, "nvidia", 0)
	loose.Group = nil
	variant := on(variantGP, display, "nvidia", 55)
	variant.Modalias = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"
	silent := on(audio, sound, "snd_hda_intel", 15)
	silent.ResetMethods = nil
	host := on(audioGPU, display, "nvidia", 15)
	host.ResetMethods = []string{"flr"}
	fns := []device.Function{
		on(gpuAddr, display, "nvidia", 10), host, silent,
		on(splitGPU, display, "nvidia", 20), on(splitUSB, usb, "xhci_hcd", 21),
		on(bridged, display, "nvidia", 30), br, pf, vf, vga, weak, dead, bound,
		on(emptyGPU, display, "", 53), loose, variant,
	}
	return assemble(fns)
}

// assemble sorts functions and derives their groups.
func assemble(fns []device.Function) *device.Snapshot {
	slices.SortFunc(fns, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	members := map[int][]pci.Address{}
	for _, f := range fns {
		if f.Group != nil {
			members[*f.Group] = append(members[*f.Group], f.Address)
		}
	}
	s := &device.Snapshot{Functions: fns, Host: device.Host{
		BootID: "boot", Kernel: "6.12", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSIX-0000:3b:00.0"},
		Drivers: []string{"vfio-pci", "nvidia", "igb"},
	}}
	for number, addrs := range members {
		s.Groups = append(s.Groups, device.Group{Number: number, Type: "DMA", Members: addrs})
	}
	slices.SortFunc(s.Groups, func(a, b device.Group) int { return a.Number - b.Number })
	return s
}

func node(s *device.Snapshot) plan.Node {
	return plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s), Owners: map[pci.Address]plan.Owner{}}
}

// asking returns a request for the functions, under the names that the
// snapshot gives them.
func asking(s *device.Snapshot, addrs ...pci.Address) *claim.Request {
	req := &claim.Request{UID: "uid-1", Namespace: "tenant-a", Name: "gpu"}
	for _, a := range addrs {
		d := claim.Device{Request: "gpu", Pool: "node-1/kata-vfio.dev", Name: "gpu-" + a.Label(), Address: a}
		if f, ok := s.Function(a); ok {
			d.Name = f.Name()
		}
		d.VFIO = v1alpha1.VFIOConfig{}
		d.VFIO.Default()
		req.Devices = append(req.Devices, d)
	}
	return req
}
