package board

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Server is a small server of Intel make with two tenants.
func Server(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.Devices["gpu0"] = t.AddGPU(0x3b)
	gpu, companions := t.AddGPUWithCompanions(0x41)
	t.Devices["gpu1"] = gpu
	for i, a := range companions {
		t.Devices[fmt.Sprintf("gpu1/companion%d", i)] = a
	}
	nic, vfs := t.AddNIC(0x5e, 4)
	t.Devices["nic0"] = nic
	for i, a := range vfs {
		t.Devices[fmt.Sprintf("nic0/vf%d", i)] = a
	}
	t.ShowPF(nic, "ens1f0")
	t.Give("t1", "train", t.Devices["gpu0"])
	t.ConfigureVFs(t.Give("t2", "serve", slices.Concat([]pci.Address{gpu}, companions, vfs[:1])...))
	t.KeepBaseline()
	return t
}

// Desktop is a consumer board without ACS: the processor's port and the graphics
// card behind it are one IOMMU group, and the whole of it is one tenant's. The
// display is the processor's own.
//
// Devices: gpu0 and gpu0/audio (tenant t1's, group 2 with the port, peg), igpu,
// nic0 and nvme0 (the node's).
func Desktop(tb testing.TB) *Tree {
	tb.Helper()
	t := IdleDesktop(tb)
	t.Give("t1", "game", t.Devices["gpu0"], t.Devices["gpu0/audio"])
	t.KeepBaseline()
	return t
}

// IdleDesktop is the computer of [Desktop] before it has a tenant.
func IdleDesktop(tb testing.TB) *Tree {
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

// Arm is a server with SMMUv3: its host bridges are platform devices, and its
// interrupts go through an ITS, which no chip's name calls remapped.
//
// Devices: gpu0 (tenant t1's), nic0, nic0/vf0 (tenant t2's) to nic0/vf3.
func Arm(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.WithIOMMU(sysfstest.SMMUv3)
	t.becomeArm()
	t.AddRoot(sysfstest.Root{Domain: 0, Bus: 0, NUMA: 0, Under: "platform/40000000.pcie"})
	t.AddPort(sysfstest.Port{Address: at(0, 0), Secondary: 1, Vendor: 0x10de, Device: 0x22b1})
	t.AddPort(sysfstest.Port{Address: at(0, 1), Secondary: 2, Vendor: 0x10de, Device: 0x22b1})
	t.Add(sysfstest.GPU(at(1, 0)))
	t.Devices["gpu0"] = at(1, 0)
	t.addMellanox()
	nic := connectX(at(2, 0))
	nic.SRIOV.VFs = 4
	t.Add(nic)
	t.nameNIC("nic0", nic.Address)
	t.Give("t1", "train", t.Devices["gpu0"])
	t.ConfigureVFs(t.Give("t2", "serve", t.Devices["nic0/vf0"]))
	t.KeepBaseline()
	return t
}

// becomeArm replaces what only x86 has of a good node.
func (t *Tree) becomeArm() {
	t.Put("sys/class/dmi/id/sys_vendor", "NVIDIA\n")
	t.Put("sys/class/dmi/id/product_name", "Grace\n")
	t.Put("sys/class/dmi/id/chassis_type", "17\n")
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro iommu.strict=1 iommu.passthrough=0\n")
	for _, x86 := range []string{
		"sys/firmware/acpi/tables/DMAR", "sys/module/kvm_intel", "sys/module/kvm_amd", "etc/modprobe.d/tdx.conf",
	} {
		t.Delete(x86)
	}
	t.Put("sys/firmware/acpi/tables/IORT", "IORT\x30\x00\x00\x00\x06"+string(make([]byte, 39)))
}

// VM is a virtual machine of QEMU with a GPU passed through to it and an IOMMU of
// QEMU's making, in which Kata runs VMs of its own. It has no firmware that
// reports DMA protection, no memory controllers, no thermal or management
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

// AMD is a server with AMD's IOMMU and two hives of four GPUs, each joined by
// XGMI links. One hive is one tenant's, the other is with amdgpu.
//
// Devices: gpu0 to gpu3 (tenant t1's), gpu4 to gpu7, nic0 and nic0/vf0 to
// nic0/vf3 (vf0 is tenant t2's), mgmt, nvme0, iommu (a function).
func AMD(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.WithIOMMU(sysfstest.AMDVi)
	t.becomeAMD()
	t.AddToKata("[agent.kata]\nvisible_cdi_devices = true\n")
	t.AddRoot(sysfstest.Root{Bus: 0, NUMA: 0})
	t.Add(sysfstest.Function{
		Address: pci.Address{Function: 2}, Vendor: 0x1022, Device: 0x149e, SubVendor: 0x1022, SubDevice: 0x149e, Class: 0x080600,
		Capabilities: pci.Capabilities{MSI: true},
	})
	t.Devices["iommu"] = pci.Address{Function: 2}
	t.addManagement()
	for i := range 8 {
		t.addInstinct(i, uint8(0x20+0x10*i))
	}
	nic, _ := t.AddNIC(0xc1, 4)
	t.nameNIC("nic0", nic)
	t.Give("t1", "train", t.Devices["gpu0"], t.Devices["gpu1"], t.Devices["gpu2"], t.Devices["gpu3"])
	t.ConfigureVFs(t.Give("t2", "serve", t.Devices["nic0/vf0"]))
	t.KeepBaseline()
	return t
}

// becomeAMD replaces what is Intel's of a good node.
func (t *Tree) becomeAMD() {
	t.Put("sys/class/dmi/id/sys_vendor", "GIGABYTE\n")
	t.Put("sys/class/dmi/id/product_name", "G293-Z20-AAP1-000\n")
	t.Put("sys/class/dmi/id/chassis_type", "17\n")
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p1 ro iommu.strict=1 efi=disable_early_pci_dma\n")
	t.Delete("sys/firmware/acpi/tables/DMAR")
	t.Delete("sys/module/kvm_intel")
	t.Delete("etc/modprobe.d/tdx.conf")
	// The signature and length of the table, which is all that tells one from none.
	t.Put("sys/firmware/acpi/tables/IVRS", "IVRS\x30\x00\x00\x00\x02"+string(make([]byte, 39)))
}

// hive returns the identity that amdgpu gave the hive of a GPU (amdgpu_xgmi.c).
func (t *Tree) hive(i int) string { return []string{"9226398475103744421", "2875401659920473318"}[i/4] }

// addInstinct adds an MI210. What amdgpu says of its hive is there while amdgpu
// has the card.
func (t *Tree) addInstinct(i int, bus uint8) {
	t.AddRoot(sysfstest.Root{Bus: bus, NUMA: i / 4})
	t.AddPort(sysfstest.Port{Address: at(bus, 1), Secondary: bus + 1, Vendor: 0x1022, Device: 0x1483})
	f := sysfstest.Function{
		Address: at(bus+1, 0), Vendor: 0x1002, Device: 0x740f, SubVendor: 0x1002, SubDevice: 0x0c34,
		Class: 0x038000, Revision: 0x02, Driver: "amdgpu", ResetMethods: []string{"flr", "bus"},
		BARs: []device.BAR{
			{Index: 0, Size: 64 << 30, Prefetchable: true, Is64: true},
			{Index: 2, Size: 2 << 20, Prefetchable: true, Is64: true},
			{Index: 5, Size: 512 << 10},
		},
		Link: &device.Link{Speed: "16.0 GT/s PCIe", Width: 16, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true}, Power: &pci.Power{NoSoftReset: true},
			MSI: true, MSIX: true, AER: true, ATS: &pci.Switchable{},
		},
	}
	if i < 4 {
		f.Driver = "vfio-pci"
	}
	t.Add(f)
	t.Devices[fmt.Sprintf("gpu%d", i)] = f.Address
	if i >= 4 {
		dir := "sys/bus/pci/devices/" + f.Address.String()
		t.Put(dir+"/xgmi_hive_info/xgmi_hive_id", t.hive(i)+"\n")
		t.Put(dir+"/xgmi_device_id", fmt.Sprintf("%d\n", 7716420193845573632+i))
		t.Put(dir+"/xgmi_physical_id", fmt.Sprintf("%d\n", i%4))
	}
}
