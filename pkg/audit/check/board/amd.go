package board

import (
	"fmt"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

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
