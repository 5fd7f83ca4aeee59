package audit_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// machine builds the snapshot of a made-up node.
type machine struct {
	s     device.Snapshot
	group int
}

func newMachine() *machine {
	return &machine{s: device.Snapshot{Host: device.Host{
		Kernel: "6.12.117", IOMMUs: []string{"dmar0", "dmar1"}, IRQChips: []string{"IR-PCI-MSI"},
	}}}
}

// add appends a function in the next free group; edit may change it. It
// returns the address, for what hangs below.
func (m *machine) add(addr, root string, numa int, class pci.Class, name string, edit func(*device.Function)) pci.Address {
	a, err := pci.ParseAddress(addr)
	if err != nil {
		panic(err)
	}
	group := m.group
	m.group++
	f := device.Function{
		Address: a, Class: class, Vendor: 0x8086, Device: 0x1234, Model: name, Root: root, Group: &group,
		Capabilities: pci.Capabilities{Express: &pci.Express{}},
	}
	if numa >= 0 {
		f.NUMANode = &numa
	}
	if class.Sub() != pci.ClassPCIBridge {
		f.ResetMethods = []string{"flr"}
	}
	if edit != nil {
		edit(&f)
	}
	f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	m.s.Functions = append(m.s.Functions, f)
	return a
}

// port adds a PCIe port with ACS as given.
func (m *machine) port(addr, root string, numa int, kind pci.PortType, acs *pci.ACS, up ...pci.Address) pci.Address {
	return m.add(addr, root, numa, 0x060400, "", func(f *device.Function) {
		f.Upstream, f.Driver = up, "pcieport"
		f.Capabilities.Express.Type, f.Capabilities.ACS = kind, acs
	})
}

// vfs gives a PF n VFs at consecutive addresses of a bus.
func (m *machine) vfs(pf pci.Address, bus uint8, n int, drivers ...string) {
	i := slices.IndexFunc(m.s.Functions, func(f device.Function) bool { return f.Address == pf })
	m.s.Functions[i].PF = &device.PF{TotalVFs: max(n, 8), NumVFs: n}
	parent := m.s.Functions[i]
	for v := range n {
		at := pf
		at.Bus, at.Device, at.Function = bus, uint8(v/8), uint8(v%8)
		m.s.Functions[i].PF.VFs = append(m.s.Functions[i].PF.VFs, at)
		m.add(at.String(), parent.Root, *parent.NUMANode, parent.Class, "", func(f *device.Function) {
			f.VF = &device.VF{PF: pf, Index: v}
			f.Upstream, f.Driver = parent.Upstream, drivers[v%len(drivers)]
		})
	}
}

// join puts functions into the group of the first.
func (m *machine) join(addrs ...pci.Address) {
	var group *int
	for i := range m.s.Functions {
		f := &m.s.Functions[i]
		if slices.Contains(addrs, f.Address) {
			if group == nil {
				group = f.Group
			}
			f.Group = group
		}
	}
}

func (m *machine) snapshot() *device.Snapshot {
	slices.SortFunc(m.s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	groups := map[int][]pci.Address{}
	for i := range m.s.Functions {
		if g := m.s.Functions[i].Group; g != nil {
			groups[*g] = append(groups[*g], m.s.Functions[i].Address)
		}
	}
	for n, members := range groups {
		m.s.Groups = append(m.s.Groups, device.Group{Number: n, Type: "DMA-FQ", Members: members})
	}
	slices.SortFunc(m.s.Groups, func(a, b device.Group) int { return a.Number - b.Number })
	return &m.s
}

func (m *machine) inventory() *audit.Inventory { return assess(m.snapshot()) }

func on() *pci.ACS { return &pci.ACS{Capability: 0x5f, Control: 0x1d} }

func off() *pci.ACS { return &pci.ACS{Capability: 0x5f} }

func with(driver string, edits ...func(*device.Function)) func(*device.Function) {
	return func(f *device.Function) {
		f.Driver = driver
		for _, e := range edits {
			e(f)
		}
	}
}

func below(up ...pci.Address) func(*device.Function) {
	return func(f *device.Function) { f.Upstream = up }
}

// lab is the kind of node that the project's own lab machine is: NICs with
// VFs, GPU stand-ins, a companion, and a group that a bridge's driver blocks.
func lab() *machine {
	m := newMachine()
	const r20, r60 = "pci0000:20", "pci0000:60"
	m.add("0000:00:00.0", "pci0000:00", -1, 0x060000, "82G33/G31/P35/P31 Express DRAM Controller", with("", conventional))
	isa := m.add("0000:00:1f.0", "pci0000:00", -1, 0x060100, "82801IB (ICH9) LPC Interface Controller", with("lpc_ich", conventional))
	sata := m.add("0000:00:1f.2", "pci0000:00", -1, 0x010601, "82801IR/IO/IH SATA Controller [AHCI mode]", with("ahci", conventional))
	smbus := m.add("0000:00:1f.3", "pci0000:00", -1, 0x0c0500, "82801I (ICH9 Family) SMBus Controller", with("i801_smbus", conventional))
	m.join(isa, sata, smbus)

	a1 := m.port("0000:20:00.0", r20, 0, pci.RootPort, on())
	pf := m.add("0000:21:00.0", r20, 0, 0x020000, "82576 Gigabit Network Connection", with("igb", below(a1), func(f *device.Function) {
		f.Children.Net = []string{"eth0"}
		f.Uses = []device.Use{{Kind: device.UseAddress, Name: "eth0", Detail: "10.0.0.5/24"}}
	}))
	m.vfs(pf, pf.Bus+1, 7, "igbvf", "vfio-pci")
	a2 := m.port("0000:20:01.0", r20, 0, pci.RootPort, on())
	m.add("0000:23:00.0", r20, 0, 0x038000, "QEMU Virtual Video Controller", with("bochs-drm", below(a2), func(f *device.Function) {
		f.Children.DRM = []string{"card0"}
		f.ResetMethods = []string{"pm"}
	}))
	a3 := m.port("0000:20:02.0", r20, 0, pci.RootPort, &pci.ACS{Capability: 0x5f, Control: 0x01})
	nvme := m.add("0000:24:00.0", r20, 0, 0x010802, "QEMU NVM Express Controller", with("nvme", below(a3), func(f *device.Function) {
		f.Children.NVMe = []string{"nvme0"}
	}))
	m.vfs(nvme, nvme.Bus+0x10, 32, "")

	b2 := m.port("0000:60:01.0", r60, 1, pci.RootPort, on())
	vga := m.add("0000:62:00.0", r60, 1, 0x038000, "QEMU Virtual Video Controller", with("vfio-pci", below(b2), noReset))
	hda := m.add("0000:62:00.1", r60, 1, 0x040300, "82801FB/FBM/FR/FW/FRW (ICH6 Family) High Definition Audio Controller", with("snd_hda_intel", below(b2), noReset))
	m.join(vga, hda)
	b3 := m.port("0000:60:02.0", r60, 1, pci.RootPort, on())
	bridge := m.port("0000:63:00.0", r60, 1, pci.PCIeToPCI, nil, b3)
	m.s.Functions[len(m.s.Functions)-1].Driver = "shpchp"
	edu := m.add("0000:64:01.0", r60, 1, 0x00ff00, "QEMU edu", with("", below(b3, bridge), noReset, conventional))
	e0 := m.add("0000:64:02.0", r60, 1, 0x020000, "82540EM Gigabit Ethernet Controller", with("e1000", below(b3, bridge), noReset, conventional))
	m.join(bridge, edu, e0)
	b4 := m.port("0000:60:03.0", r60, 1, pci.RootPort, on())
	m.add("0000:65:00.0", r60, 1, 0x020000, "82574L Gigabit Network Connection", with("e1000e", below(b4), func(f *device.Function) { f.ResetMethods = []string{"pm"} }))
	return m
}

func conventional(f *device.Function) { f.Capabilities.Express = nil }

func noReset(f *device.Function) { f.ResetMethods = nil }

// server is a two-socket machine with eight GPUs and four NICs behind
// switches, and the many small functions of its chipset.
func server() *machine {
	m := newMachine()
	for numa := range 2 {
		base := 0x10 + numa*0x70
		chipset := fmt.Sprintf("pci0000:%02x", base-0x10)
		for i := range 18 {
			m.add(fmt.Sprintf("0000:%02x:%02x.%d", base-0x10, 8+i/4, i%4), chipset, numa, 0x088000, "Sky Lake-E Ubox Registers", with("", conventional, noReset))
		}
		for sw := range 2 {
			m.serverSwitch(base+sw*0x30, numa, sw)
		}
	}
	return m
}

// serverSwitch adds a root with one switch: two GPUs and a NIC with VFs.
func (m *machine) serverSwitch(bus, numa, sw int) {
	root := fmt.Sprintf("pci0000:%02x", bus)
	rp := m.port(fmt.Sprintf("0000:%02x:01.0", bus), root, numa, pci.RootPort, on())
	up := m.port(fmt.Sprintf("0000:%02x:00.0", bus+1), root, numa, pci.UpstreamPort, nil, rp)
	for i := range 2 {
		acs := on()
		if sw == 1 && i == 1 && numa == 1 {
			acs.Control = 0
		}
		down := m.port(fmt.Sprintf("0000:%02x:%02x.0", bus+2, i), root, numa, pci.DownstreamPort, acs, rp, up)
		m.add(fmt.Sprintf("0000:%02x:00.0", bus+3+i), root, numa, 0x030200, "GH100 [H100 SXM5 80GB]", with("nvidia", below(rp, up, down), func(f *device.Function) { f.Vendor, f.Switch = 0x10de, &up }))
	}
	down := m.port(fmt.Sprintf("0000:%02x:02.0", bus+2), root, numa, pci.DownstreamPort, on(), rp, up)
	pf := m.add(fmt.Sprintf("0000:%02x:00.0", bus+6), root, numa, 0x020000, "MT2910 Family [ConnectX-7]", with("mlx5_core", below(rp, up, down), func(f *device.Function) {
		f.Children.Net = []string{fmt.Sprintf("ens%df0np0", bus)}
		f.Capabilities.ATS, f.Switch = &pci.Switchable{Enabled: true}, &up
	}))
	m.vfs(pf, pf.Bus+1, 16*(1+sw*3), "mlx5_core", "mlx5_vfio_pci")
}

// desktop is a machine without ACS on its root ports: one group holds two
// ports and all that is below them.
func desktop() *machine {
	m := newMachine()
	const root = "pci0000:00"
	m.s.Host.IRQChips = []string{"PCI-MSI"}
	p0 := m.port("0000:00:01.0", root, -1, pci.RootPort, nil)
	p1 := m.port("0000:00:01.1", root, -1, pci.RootPort, nil)
	gpu := m.add("0000:01:00.0", root, -1, 0x030000, "AD102 [GeForce RTX 4090] with a name so long that no card of sane width could show it", with("nouveau", below(p0)))
	audio := m.add("0000:01:00.1", root, -1, 0x040300, "AD102 High Definition Audio Controller", with("snd_hda_intel", below(p0), noReset))
	ssd := m.add("0000:02:00.0", root, -1, 0x010802, "NVMe SSD Controller 980 <PRO> & \"friends\"", with("nvme", below(p1), func(f *device.Function) {
		f.Uses = []device.Use{{Kind: device.UseMount, Name: "nvme0n1p2", Detail: "/"}}
	}))
	m.join(p0, p1, gpu, audio, ssd)
	m.add("0000:00:02.0", root, -1, 0x030000, "UHD Graphics 770", with("i915"))
	m.add("10000:e1:00.0", "pci10000:e0", -1, 0x010802, "Behind VMD", with("nvme", func(f *device.Function) { f.Group = nil }))
	return m
}

func inventories(t *testing.T) map[string]*audit.Inventory {
	t.Helper()
	return map[string]*audit.Inventory{
		"lab": lab().inventory(), "server": server().inventory(), "desktop": desktop().inventory(),
		"empty": assess(&device.Snapshot{}),
	}
}
