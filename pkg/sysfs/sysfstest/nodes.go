package sysfstest

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// The methods below add arrangements that many tests need. Each has its own root port at the given bus, and its root bus
// one below, so that buses two apart don't collide: 0x3b makes root bus 3a, root port 0000:3a:01.0 and functions at
// 0000:3b:00.x. For other arrangements, add the parts one by one.

// AddRootPort adds a root bus with one root port that leads to the bus.
func (k *Kernel) AddRootPort(bus uint8) {
	k.AddRoot(Root{Bus: bus - 1})
	k.AddPort(Port{Address: at(bus-1, 1, 0), Secondary: bus, Subordinate: bus})
}

// GPU returns a GPU without companions, on the driver nvidia.
func GPU(a pci.Address) Function {
	return Function{
		Address: a, Vendor: 0x10de, Device: 0x2330, SubVendor: 0x10de, SubDevice: 0x16c1,
		Class: pci.Class3D << 8, Revision: 0xa1, Driver: "nvidia",
		ResetMethods: []string{"flr", "bus"},
		BARs: []device.BAR{
			{Index: 0, Size: 16 << 20, Prefetchable: true, Is64: true},
			{Index: 2, Size: 128 << 30, Prefetchable: true, Is64: true},
			{Index: 4, Size: 32 << 20, Prefetchable: true, Is64: true},
		},
		Link: &device.Link{Speed: "32.0 GT/s PCIe", Width: 16, MaxSpeed: "32.0 GT/s PCIe", MaxWidth: 16},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true},
			Power:   &pci.Power{},
			MSI:     true, MSIX: true, AER: true,
			ATS: &pci.Switchable{},
		},
	}
}

// Audio returns the audio function of a GPU. It can't be reset alone.
func Audio(a pci.Address) Function {
	return Function{
		Address: a, Vendor: 0x10de, Device: 0x22ba, SubVendor: 0x10de, SubDevice: 0x16c1,
		Class: pci.ClassAudio << 8, Revision: 0xa1, Driver: "snd_hda_intel",
		BARs:         []device.BAR{{Index: 0, Size: 16 << 10}},
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint}, Power: &pci.Power{}, MSI: true},
	}
}

// NIC returns a PF with 8 VFs that are not enabled, on the driver igb.
func NIC(a pci.Address) Function {
	return Function{
		Address: a, Vendor: 0x8086, Device: 0x10c9, SubVendor: 0x8086, SubDevice: 0xa03c,
		Class: 0x020000, Revision: 0x01, Driver: "igb",
		ResetMethods: []string{"flr", "pm", "bus"},
		BARs: []device.BAR{
			{Index: 0, Size: 128 << 10},
			{Index: 1, Size: 128 << 10},
			{Index: 2, Size: 32, IO: true},
			{Index: 3, Size: 16 << 10},
		},
		Link: &device.Link{Speed: "5.0 GT/s PCIe", Width: 4, MaxSpeed: "5.0 GT/s PCIe", MaxWidth: 4},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true},
			Power:   &pci.Power{},
			MSI:     true, MSIX: true, AER: true,
			SRIOV: &pci.SRIOV{TotalVFs: 8, VFDevice: 0x10ca},
		},
		SRIOV: &SRIOV{
			BARs: []device.BAR{
				{Index: 0, Size: 16 << 10, Prefetchable: true, Is64: true},
				{Index: 3, Size: 16 << 10, Prefetchable: true, Is64: true},
			},
		},
	}
}

// NVMe returns an NVMe controller on the driver nvme.
func NVMe(a pci.Address) Function {
	return Function{
		Address: a, Vendor: 0x144d, Device: 0xa80a, SubVendor: 0x144d, SubDevice: 0xa801,
		Class: pci.ClassNVMe<<8 | 0x02, Driver: "nvme",
		ResetMethods: []string{"flr", "bus"},
		BARs:         []device.BAR{{Index: 0, Size: 16 << 10, Is64: true}},
		Link:         &device.Link{Speed: "16.0 GT/s PCIe", Width: 4, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 4},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true},
			Power:   &pci.Power{NoSoftReset: true},
			MSI:     true, MSIX: true, AER: true,
		},
	}
}

// AddGPU adds a GPU alone in its group, at bus:00.0.
func (k *Kernel) AddGPU(bus uint8) pci.Address {
	k.AddRootPort(bus)
	gpu := at(bus, 0, 0)
	k.Add(GPU(gpu))
	return gpu
}

// AddGPUWithAudio adds a GPU and its audio function, in one group. The GPU has FLR; the audio function can't be reset alone.
func (k *Kernel) AddGPUWithAudio(bus uint8, group int) (gpu, audio pci.Address) {
	k.AddRootPort(bus)
	g, a := GPU(at(bus, 0, 0)), Audio(at(bus, 0, 1))
	g.Group, a.Group = group, group
	g.ResetMethods = []string{"flr"}
	k.Add(g, a)
	return g.Address, a.Address
}

// AddGPUWithCompanions adds a GPU with audio, USB and UCSI functions, each in a separate group.
func (k *Kernel) AddGPUWithCompanions(bus uint8) (gpu pci.Address, companions []pci.Address) {
	k.AddRootPort(bus)
	g, audio := GPU(at(bus, 0, 0)), Audio(at(bus, 0, 1))
	g.ResetMethods = []string{"flr"}
	usb, ucsi := Audio(at(bus, 0, 2)), Audio(at(bus, 0, 3))
	usb.Device, usb.Class, usb.Driver = 0x1ad8, pci.ClassUSB<<8|0x30, "xhci_hcd"
	ucsi.Device, ucsi.Class, ucsi.Driver = 0x1ad9, pci.ClassSerialOther<<8, "nvidia-gpu"
	k.Add(g, audio, usb, ucsi)
	return g.Address, []pci.Address{audio.Address, usb.Address, ucsi.Address}
}

// AddNIC adds a PF with VFs, which have the driver igbvf and separate groups.
func (k *Kernel) AddNIC(bus uint8, vfs int) (pf pci.Address, all []pci.Address) {
	k.AddRootPort(bus)
	k.addIgbvf()
	nic := NIC(at(bus, 0, 0))
	nic.SRIOV.VFs = vfs
	k.Add(nic)
	return nic.Address, k.VFs(nic.Address)
}

// HCA returns a PF of InfiniBand with 8 VFs that are not enabled, on mlx5_core,
// whose VFs it takes too.
func HCA(a pci.Address) Function {
	f := NIC(a)
	f.Vendor, f.Device, f.SubVendor, f.SubDevice = 0x15b3, 0x101b, 0x15b3, 0x0007
	f.Class, f.Driver, f.ResetMethods = pci.ClassInfiniBand<<8, "mlx5_core", []string{"flr", "bus"}
	f.Capabilities.SRIOV = &pci.SRIOV{TotalVFs: 8, VFDevice: 0x101c}
	return f
}

// AddHCA adds an InfiniBand PF with VFs. All have RDMA devices, and each VF has a separate group.
func (k *Kernel) AddHCA(bus uint8, vfs int) (pf pci.Address, all []pci.Address) {
	k.AddRootPort(bus)
	hca := HCA(at(bus, 0, 0))
	k.AddDriver("mlx5_core", Driver{SRIOV: true, Infiniband: "mlx5_", IDs: []Match{
		MatchID(hca.Vendor, hca.Device), MatchID(hca.Vendor, hca.Capabilities.SRIOV.VFDevice),
	}})
	hca.SRIOV.VFs = vfs
	k.Add(hca)
	return hca.Address, k.VFs(hca.Address)
}

// addIgbvf registers the driver of the VFs, once.
func (k *Kernel) addIgbvf() {
	k.mu.Lock()
	known := k.driverByName("igbvf") != nil
	k.mu.Unlock()
	if !known {
		k.AddDriver("igbvf", Driver{IDs: []Match{MatchID(0x8086, 0x10ca)}})
	}
}

// VFs returns the enabled VFs of a PF by index.
func (k *Kernel) VFs(pf pci.Address) []pci.Address {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[pf]
	if f == nil {
		return nil
	}
	all := make([]pci.Address, 0, len(f.vfs))
	for _, vf := range f.vfs {
		all = append(all, vf.Address)
	}
	return all
}

// AddNVMe adds an NVMe controller alone in its group.
func (k *Kernel) AddNVMe(bus uint8) pci.Address {
	k.AddRootPort(bus)
	nvme := at(bus, 0, 0)
	k.Add(NVMe(nvme))
	return nvme
}

// AddBehindBridge adds a GPU on a conventional bus below a PCIe-to-PCI bridge, in one group. While the bridge has the
// driver shpchp, the group is not viable.
func (k *Kernel) AddBehindBridge(bus uint8, group int) (gpu, bridge pci.Address) {
	k.AddRootPort(bus)
	bridge = at(bus, 0, 0)
	k.AddPort(Port{
		Address: bridge, Secondary: bus + 1, Type: pci.PCIeToPCI, NoACS: true,
		Driver: "shpchp", Group: group,
	})
	g := GPU(at(bus+1, 1, 0))
	g.Group, g.Link, g.ResetMethods = group, nil, []string{"bus"}
	g.Capabilities = pci.Capabilities{Power: &pci.Power{}, MSI: true}
	k.Add(g)
	return g.Address, bridge
}

// AddWithBusyMate adds a GPU whose group has an NVMe controller with a mounted
// file system.
func (k *Kernel) AddWithBusyMate(bus uint8, group int) (gpu, mate pci.Address) {
	k.AddRootPort(bus)
	g, n := GPU(at(bus, 0, 0)), NVMe(at(bus, 1, 0))
	g.Group, n.Group = group, group
	k.Add(g, n)
	k.AddMount(k.disk(n.Address)+"p1", "/var/lib/data")
	return g.Address, n.Address
}

// disk returns the name of an NVMe controller's first namespace.
func (k *Kernel) disk(a pci.Address) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	if f == nil || len(f.children) == 0 {
		return ""
	}
	return f.children[0].name + "n1"
}

// at returns an address in domain 0.
func at(bus, dev, fn uint8) pci.Address {
	return pci.Address{Bus: bus, Device: dev, Function: fn}
}

// AddGPUAndNIC adds a switch on the bus, with a GPU and a NIC below it, on the third and fourth bus from there, and the
// NIC's VFs.
func (k *Kernel) AddGPUAndNIC(bus uint8, vfs int) (gpu, pf pci.Address, all []pci.Address) {
	k.AddRoot(Root{Bus: bus - 1})
	k.AddPort(Port{Address: at(bus-1, 1, 0), Secondary: bus, Subordinate: bus + 3})
	k.AddSwitch(Switch{Upstream: at(bus, 0, 0), Secondary: bus + 1, Ports: []Port{
		{Address: at(bus+1, 0, 0), Secondary: bus + 2}, {Address: at(bus+1, 1, 0), Secondary: bus + 3},
	}})
	k.addIgbvf()
	nic := NIC(at(bus+3, 0, 0))
	nic.SRIOV.VFs = vfs
	k.Add(GPU(at(bus+2, 0, 0)), nic)
	return at(bus+2, 0, 0), nic.Address, k.VFs(nic.Address)
}

// Scale adds n functions that can be assigned, for measurements: a GPU and two
// PFs with seven VFs each below every switch. The switches are spread over
// domains of their own from 1 up and over two NUMA nodes.
// It returns their addresses; ports come on top. 4,096 functions are a quarter
// of a million files and links: seconds on a tmpfs, maybe a minute on a disk.
func (k *Kernel) Scale(n int) []pci.Address {
	k.addIgbvf()
	s := &scale{k: k, want: n}
	for domain := uint32(1); len(s.made) < n; domain++ {
		s.domain(domain)
	}
	return s.made
}

// A scale is a run of [Kernel.Scale].
type scale struct {
	k    *Kernel
	want int
	made []pci.Address
}

// busesPerSwitch is the number of buses of one switch: the bus of its upstream port, its own, and three below it.
const busesPerSwitch = 5

// domain fills one domain with switches.
func (s *scale) domain(domain uint32) {
	s.k.AddRoot(Root{Domain: domain, NUMA: int(domain) % 2})
	for port := uint8(0); port < 32 && len(s.made) < s.want; port++ {
		bus := 1 + port*busesPerSwitch
		s.k.AddPort(Port{
			Address:   pci.Address{Domain: domain, Device: port},
			Secondary: bus, Subordinate: bus + busesPerSwitch - 1,
		})
		s.behind(domain, bus)
	}
}

// behind adds a switch at the bus, with a GPU and two PFs below it.
func (s *scale) behind(domain uint32, bus uint8) {
	ports := make([]Port, 3)
	for i := range ports {
		ports[i] = Port{
			Address:   pci.Address{Domain: domain, Bus: bus + 1, Device: uint8(i)},
			Secondary: bus + 2 + uint8(i),
		}
	}
	s.k.AddSwitch(Switch{Upstream: pci.Address{Domain: domain, Bus: bus}, Secondary: bus + 1, Ports: ports})
	s.add(GPU(pci.Address{Domain: domain, Bus: bus + 2}), 0)
	s.add(NIC(pci.Address{Domain: domain, Bus: bus + 3}), 7)
	s.add(NIC(pci.Address{Domain: domain, Bus: bus + 4}), 7)
}

// add adds a function with as many VFs as are still wanted.
func (s *scale) add(f Function, vfs int) {
	left := s.want - len(s.made)
	if left <= 0 {
		return
	}
	if f.SRIOV != nil {
		f.SRIOV.VFs = min(vfs, left-1)
	}
	s.k.Add(f)
	s.made = append(s.made, f.Address)
	s.made = append(s.made, s.k.VFs(f.Address)...)
}

// Numbers of the nodes that NVIDIA's driver has for all GPUs. Those of uvm and caps
// are allotted as it comes.
const (
	majorUVM  = 508
	majorCaps = 234
)

// AddNVIDIANodes creates the device nodes through which processes use all GPUs of NVIDIA's driver, like NVIDIA's tools,
// and their lines in /proc/devices.
func (k *Kernel) AddNVIDIANodes() {
	k.build(func() {
		for node, n := range map[string]Number{
			"/dev/nvidiactl":               {majorNVIDIA, 255},
			"/dev/nvidia-modeset":          {majorNVIDIA, 254},
			"/dev/nvidia-uvm":              {majorUVM, 0},
			"/dev/nvidia-uvm-tools":        {majorUVM, 1},
			"/dev/nvidia-caps/nvidia-cap1": {majorCaps, 1},
			"/dev/nvidia-caps/nvidia-cap2": {majorCaps, 2},
		} {
			k.nodes[node] = n
			k.put(node[1:], "", 0o600)
		}
		k.put("proc/devices", "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n  8 sd\n", readOnly)
	})
}

// SetNVIDIAModeset loads nvidia_drm with modeset on or off: on, the GPUs with a display
// engine that NVIDIA's driver has by then get a connector.
func (k *Kernel) SetNVIDIAModeset(on bool) {
	text := "N\n"
	if on {
		text = "Y\n"
	}
	k.build(func() {
		k.put("sys/module/nvidia_drm/parameters/modeset", text, 0o400)
		for _, f := range k.functions {
			if f.driver != nil && f.driver.name == "nvidia" && f.Class.Sub() == pci.ClassVGA {
				k.setConnector(f, on)
			}
		}
	})
}

// setConnector adds a connector to a function's card, or removes it.
func (k *Kernel) setConnector(f *function, there bool) {
	for i := range f.children {
		c := &f.children[i]
		if !strings.HasPrefix(c.name, "card") {
			continue
		}
		name := c.name + "-DP-1"
		class, dir := path.Join("sys/class/drm", name), path.Join(f.dir, "drm", c.name, name)
		k.remove(class)
		k.remove(dir)
		if !there {
			continue
		}
		k.mkdir(dir)
		k.link(class, dir)
		c.paths = slices.Insert(c.paths, 0, class)
	}
}
