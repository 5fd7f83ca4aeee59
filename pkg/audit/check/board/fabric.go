package board

import (
	"fmt"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Fabric is a board of four GPUs with two NVSwitches, in partitions for two tenants,
// and an InfiniBand card of which each has a VF.
func Fabric(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	for i, bus := range []uint8{0x1b, 0x2b, 0x3b, 0x4b} {
		t.Devices[fmt.Sprintf("gpu%d", i)] = t.AddGPU(bus)
	}
	for i, bus := range []uint8{0x05, 0x06} {
		t.Devices[fmt.Sprintf("nvswitch%d", i)] = t.addNVSwitch(bus)
	}
	hca, vfs := t.AddHCA(0x5e, 2)
	t.Devices["hca0"] = hca
	for i, a := range vfs {
		t.Devices[fmt.Sprintf("hca0/vf%d", i)] = a
	}
	t.ShowPF(hca, "ibs1")
	t.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "DAEMONIZE=1\nFABRIC_MODE=1\nFABRIC_MODE_RESTART=1\nFM_CMD_BIND_INTERFACE=127.0.0.1\nFM_CMD_PORT_NUMBER=6666\nFM_CMD_UNIX_SOCKET_PATH=/run/nvidia-fabricmanager/socket\n")
	t.ConfigureVFs(t.Give("t1", "train", t.Devices["gpu0"], t.Devices["gpu1"], vfs[0]))
	t.ConfigureVFs(t.Give("t2", "serve", t.Devices["gpu2"], vfs[1]))
	t.KeepBaseline()
	return t
}

func (t *Tree) addNVSwitch(bus uint8) pci.Address {
	t.AddRootPort(bus)
	a := pci.Address{Bus: bus}
	t.Add(sysfstest.Function{
		Address: a, Vendor: 0x10de, Device: 0x22a3, SubVendor: 0x10de, SubDevice: 0x1796, Class: 0x068000, Driver: "nvidia-nvswitch",
		ResetMethods: []string{"flr"}, Capabilities: sysfstest.GPU(a).Capabilities,
	})
	return a
}
