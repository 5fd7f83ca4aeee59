package board

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// VM is a virtual machine of QEMU with a GPU passed through to it and an IOMMU of
// QEMU's making, in which Kata runs VMs of its own. It has no firmware that
// tells of DMA protection, no memory controllers, no thermal or management
// controllers, and no say in its host's.
//
// Devices: gpu0 (tenant t1's), nic0 and disk0 (virtio, the node's).
func VM(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.Put("sys/class/dmi/id/sys_vendor", "QEMU\n")
	t.Put("sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)\n")
	t.Put("sys/class/dmi/id/chassis_type", "1\n")
	t.Put("sys/hypervisor/type", "kvm\n")
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/vda1 ro intel_iommu=on iommu.strict=1\n")
	t.AddRoot(sysfstest.Root{Bus: 0, NUMA: -1})
	for i := range uint8(3) { // pcie-root-port of QEMU, which has ACS
		t.AddPort(sysfstest.Port{Address: at(0, 2+i), Secondary: 1 + i, Vendor: 0x1b36, Device: 0x000c})
	}
	gpu := sysfstest.GPU(at(1, 0))
	gpu.Capabilities.ATS = nil // QEMU hides it (hw/vfio/pci.c vfio_add_ext_cap)
	t.Add(gpu, virtio(at(2, 0), 0x1041, pci.ClassEthernet<<8), virtio(at(3, 0), 0x1042, 0x010000))
	t.Devices["gpu0"], t.Devices["nic0"], t.Devices["disk0"] = gpu.Address, at(2, 0), at(3, 0)
	t.Give("t1", "train", t.Devices["gpu0"])
	t.KeepBaseline()
	return t
}

// virtio returns a modern virtio device.
func virtio(a pci.Address, id pci.ID, class pci.Class) sysfstest.Function {
	return sysfstest.Function{
		Address: a, Vendor: 0x1af4, Device: id, SubVendor: 0x1af4, SubDevice: 0x1100, Class: class, Revision: 0x01,
		Driver: "virtio-pci", ResetMethods: []string{"bus"},
		BARs:         []device.BAR{{Index: 1, Size: 4 << 10}, {Index: 4, Size: 16 << 10, Prefetchable: true, Is64: true}},
		Link:         &device.Link{Speed: "2.5 GT/s PCIe", Width: 1, MaxSpeed: "2.5 GT/s PCIe", MaxWidth: 1},
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint}, Power: &pci.Power{}, MSIX: true},
	}
}
