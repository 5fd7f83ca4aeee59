package board

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

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
