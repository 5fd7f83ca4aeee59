package board

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Desktop is a consumer board without ACS: the processor's port and the graphics
// card behind it are one IOMMU group, and the whole of it is one tenant's. The
// display is the processor's own.
//
// Devices: gpu0 and gpu0/audio (tenant t1's, group 2 with the port, peg), igpu,
// nic0 and nvme0 (the node's).
func Desktop(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.Put("sys/class/dmi/id/sys_vendor", "ASUS\n")
	t.Put("sys/class/dmi/id/product_name", "PRIME Z790-P\n")
	t.Put("sys/class/dmi/id/chassis_type", "3\n") // desktop
	t.AddRoot(sysfstest.Root{Bus: 0, NUMA: -1})
	t.Add(integrated(at(0, 2)))
	t.Devices["igpu"] = at(0, 2)
	t.AddPort(sysfstest.Port{Address: at(0, 1), Secondary: 1, NoACS: true, Group: 2, Device: 0xa70d})
	t.addCard()
	// The ports of Intel's chipsets say nothing of ACS in the way of the
	// specification, and a quirk of the kernel takes them as isolated.
	t.AddPort(sysfstest.Port{Address: at(0, 0x1a), Secondary: 2, Device: 0x7a48})
	t.AddPort(sysfstest.Port{Address: at(0, 0x1c), Secondary: 3, Device: 0x7ab8})
	t.Add(sysfstest.NVMe(at(2, 0)), i225(at(3, 0)))
	t.Devices["nvme0"], t.Devices["nic0"] = at(2, 0), at(3, 0)
	t.AddMount("nvme0n1p1", "/")
	t.AddDefaultRoute("eth0", "192.168.1.20/24", "192.168.1.1")
	t.Give("t1", "game", t.Devices["gpu0"], t.Devices["gpu0/audio"])
	t.KeepBaseline()
	return t
}

// addCard adds a graphics card with its audio function in the port's group.
func (t *Tree) addCard() {
	gpu, audio := sysfstest.GPU(at(1, 0)), sysfstest.Audio(pci.Address{Bus: 1, Function: 1})
	gpu.Device, gpu.SubVendor, gpu.SubDevice = 0x2684, 0x1043, 0x889b // RTX 4090
	gpu.Class, gpu.Group, audio.Group = pci.ClassVGA<<8, 2, 2
	gpu.Driver, audio.Driver = "nouveau", "snd_hda_intel"
	gpu.ResetMethods, audio.ResetMethods = []string{"bus"}, []string{"bus"}
	gpu.BARs = []device.BAR{
		{Index: 0, Size: 16 << 20},
		{Index: 1, Size: 32 << 30, Prefetchable: true, Is64: true},
		{Index: 3, Size: 32 << 20, Prefetchable: true, Is64: true},
		{Index: 5, Size: 128, IO: true},
	}
	gpu.Link = &device.Link{Speed: "16.0 GT/s PCIe", Width: 16, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16}
	gpu.Capabilities.Express = &pci.Express{Type: pci.LegacyEndpoint}
	gpu.Capabilities.ATS, gpu.Capabilities.MSIX = nil, false
	t.Add(gpu, audio)
	t.Devices["peg"], t.Devices["gpu0"], t.Devices["gpu0/audio"] = at(0, 1), gpu.Address, audio.Address
}

// integrated returns the processor's own display.
func integrated(a pci.Address) sysfstest.Function {
	return sysfstest.Function{
		Address: a, Vendor: 0x8086, Device: 0xa780, SubVendor: 0x1043, SubDevice: 0x8882,
		Class: pci.ClassVGA << 8, Revision: 0x04, Driver: "i915", BootVGA: true,
		ResetMethods: []string{"flr"},
		BARs:         []device.BAR{{Index: 0, Size: 16 << 20, Is64: true}, {Index: 2, Size: 256 << 20, Prefetchable: true, Is64: true}},
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.RCEndpoint, FLR: true}, Power: &pci.Power{}, MSI: true},
	}
}

// i225 returns a NIC without SR-IOV.
func i225(a pci.Address) sysfstest.Function {
	f := sysfstest.NIC(a)
	f.Device, f.Driver, f.SRIOV, f.Capabilities.SRIOV = 0x15f3, "igc", nil, nil
	f.Link = &device.Link{Speed: "5.0 GT/s PCIe", Width: 1, MaxSpeed: "5.0 GT/s PCIe", MaxWidth: 1}
	return f
}
