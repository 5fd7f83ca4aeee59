package board

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// goodGpu sets up what the checks of GPU look at: nobody listens to the world.
func (t *Tree) goodGpu() {
	t.Put("proc/1/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		"   0: 0100007F:1A0A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21345 1 0000000000000000 100 0 0 10 0\n"+
		"   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21346 1 0000000000000000 100 0 0 10 0\n")
	t.Put("proc/1/net/tcp6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		"   0: 00000000000000000000000001000000:1A0A 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21347 1 0000000000000000 100 0 0 10 0\n")
}

// AddHive adds AMD accelerators that are one XGMI hive, at the buses, on amdgpu.
func (t *Tree) AddHive(id string, buses ...uint8) {
	t.TB.Helper()
	for i, bus := range buses {
		t.AddRootPort(bus)
		gpu := sysfstest.GPU(pci.Address{Bus: bus})
		gpu.Vendor, gpu.Device, gpu.SubVendor, gpu.Class, gpu.Driver = 0x1002, 0x74a1, 0x1002, 0x120000, "amdgpu"
		t.Add(gpu)
		t.Devices[fmt.Sprintf("xgmi%d", i)] = gpu.Address
		t.Put("sys/bus/pci/devices/"+gpu.Address.String()+"/xgmi_hive_info/xgmi_hive_id", id+"\n")
	}
}
