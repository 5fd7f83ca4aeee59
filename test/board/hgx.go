package board

import (
	"fmt"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// HGX is an 8-GPU server as the vendors of HGX boards build them: two Intel
// sockets, on each two PCIe switches with two GPUs and two NICs, and four
// NVSwitches that join all GPUs and that the node keeps. Its fabric manager
// divides the GPUs into partitions.
//
// Devices: gpu0 to gpu7, nvswitch0 to nvswitch3, nic0 to nic7, nic0/vf0 to
// nic7/vf15, sw0 to sw3 (the switches' upstream ports), mgmt (the node's own
// NIC) and nvme0. Tenant t1 has gpu0 to gpu3 and a VF beside each, t2 gpu4 and
// gpu5 with a VF each; the others are with their host drivers.
func HGX(tb testing.TB) *Tree {
	tb.Helper()
	t := IdleHGX(tb, 16)
	t.ConfigureVFs(t.Give("t1", "train",
		t.Devices["gpu0"], t.Devices["gpu1"], t.Devices["gpu2"], t.Devices["gpu3"],
		t.Devices["nic0/vf0"], t.Devices["nic1/vf0"], t.Devices["nic2/vf0"], t.Devices["nic3/vf0"]))
	t.ConfigureVFs(t.Give("t2", "serve", t.Devices["gpu4"], t.Devices["gpu5"], t.Devices["nic4/vf0"], t.Devices["nic5/vf0"]))
	t.KeepBaseline()
	return t
}

// IdleHGX is the server of [HGX] before it has tenants. Each NIC has so many VFs.
func IdleHGX(tb testing.TB, vfs int) *Tree {
	tb.Helper()
	t := New(tb)
	t.twoSockets()
	t.addMellanox()
	t.AddRoot(sysfstest.Root{Bus: 0x00, NUMA: 0})
	t.addManagement()
	t.addNVSwitches(0x04)
	for i, bus := range []uint8{0x15, 0x37, 0x97, 0xb7} {
		t.addQuad(i, bus, vfs)
	}
	t.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", fabricManager)
	t.Own("run/nvidia-fabricmanager", "40700", 0, 0)
	return t
}

// fabricManager is fabricmanager.cfg for shared NVSwitches: virtual machines have
// the GPUs, the node has the switches (Fabric Manager User Guide, FABRIC_MODE).
const fabricManager = `LOG_LEVEL=4
LOG_FILE_NAME=/var/log/fabricmanager.log
DAEMONIZE=1
BIND_INTERFACE_IP=127.0.0.1
STARTING_TCP_PORT=16000
UNIX_SOCKET_PATH=
FABRIC_MODE=1
FABRIC_MODE_RESTART=0
FM_CMD_BIND_INTERFACE=127.0.0.1
FM_CMD_PORT_NUMBER=6666
FM_CMD_UNIX_SOCKET_PATH=/run/nvidia-fabricmanager/fm.sock
FM_STAY_RESIDENT_ON_FAILURES=0
ACCESS_LINK_FAILURE_MODE=0
TRUNK_LINK_FAILURE_MODE=0
NVSWITCH_FAILURE_MODE=0
ABORT_CUDA_JOBS_ON_FM_EXIT=1
`

// twoSockets says what machine it is.
func (t *Tree) twoSockets() {
	t.Put("sys/class/dmi/id/sys_vendor", "Supermicro\n")
	t.Put("sys/class/dmi/id/product_name", "SYS-821GE-TNHR\n")
	t.Put("sys/class/dmi/id/chassis_type", "17\n") // main server chassis
	t.Put("sys/devices/system/node/online", "0-1\n")
	t.Put("sys/devices/system/node/possible", "0-1\n")
	t.Put("sys/devices/system/cpu/online", "0-111\n")
}

// addMellanox registers the driver of ConnectX PFs and VFs.
func (t *Tree) addMellanox() {
	t.AddDriver("mlx5_core", sysfstest.Driver{SRIOV: true, Infiniband: "mlx5_", IDs: []sysfstest.Match{
		sysfstest.MatchID(0x15b3, 0x1021), sysfstest.MatchID(0x15b3, 0x101e),
	}})
}

// addManagement adds what the node itself lives on: a NIC and a drive.
func (t *Tree) addManagement() {
	t.AddPort(sysfstest.Port{Address: at(0, 1), Secondary: 1})
	t.AddPort(sysfstest.Port{Address: at(0, 2), Secondary: 2})
	nic := sysfstest.NIC(at(1, 0))
	nic.Device, nic.Driver = 0x1563, "ixgbe" // X550
	nic.Capabilities.SRIOV = nil
	nic.SRIOV = nil
	t.Add(nic, sysfstest.NVMe(at(2, 0)))
	t.Devices["mgmt"], t.Devices["nvme0"] = nic.Address, at(2, 0)
	t.AddDefaultRoute("eth0", "10.10.0.21/24", "10.10.0.1")
	t.AddMount("nvme0n1p1", "/")
}

// addNVSwitches adds the four NVSwitches of an HGX H100 board behind a switch of
// their own.
func (t *Tree) addNVSwitches(bus uint8) {
	t.addSwitch("nvswitches", sysfstest.Port{Address: at(0, 3), Secondary: bus}, 4)
	for i := range uint8(4) {
		a := at(bus+2+i, 0)
		t.Add(sysfstest.Function{
			Address: a, Vendor: 0x10de, Device: 0x22a3, SubVendor: 0x10de, SubDevice: 0x1796,
			Class: 0x068000, Revision: 0xa1, Driver: "nvidia-nvswitch",
			ResetMethods: []string{"flr", "bus"},
			BARs:         []device.BAR{{Index: 0, Size: 32 << 20, Is64: true, Prefetchable: true}},
			Link:         &device.Link{Speed: "8.0 GT/s PCIe", Width: 2, MaxSpeed: "8.0 GT/s PCIe", MaxWidth: 2},
			Capabilities: pci.Capabilities{
				Express: &pci.Express{Type: pci.Endpoint, FLR: true}, Power: &pci.Power{NoSoftReset: true},
				MSI: true, MSIX: true, AER: true,
			},
		})
		t.Devices[fmt.Sprintf("nvswitch%d", i)] = a
	}
}

// addQuad adds a root bus with a switch, behind which are two GPUs and two NICs
// with VFs.
func (t *Tree) addQuad(i int, bus uint8, vfs int) {
	t.AddRoot(sysfstest.Root{Bus: bus, NUMA: i / 2})
	t.addSwitch(fmt.Sprintf("sw%d", i), sysfstest.Port{Address: at(bus, 1), Secondary: bus + 1}, 4)
	for n := range 2 {
		gpu := sysfstest.GPU(at(bus+3+uint8(n), 0))
		nic := connectX(at(bus+5+uint8(n), 0))
		nic.SRIOV.VFs = vfs
		t.Add(gpu, nic)
		t.Devices[fmt.Sprintf("gpu%d", 2*i+n)] = gpu.Address
		t.nameNIC(fmt.Sprintf("nic%d", 2*i+n), nic.Address)
	}
}

// addSwitch adds a Broadcom switch with n downstream ports below a root port. It
// takes the buses from the port's secondary one on: its own, that of its ports,
// and one for each port.
func (t *Tree) addSwitch(name string, root sysfstest.Port, n uint8) {
	bus := root.Secondary
	root.Subordinate = bus + 1 + n
	t.AddPort(root)
	sw := sysfstest.Switch{Upstream: at(bus, 0), Secondary: bus + 1, Vendor: 0x1000, Device: 0xc030}
	for i := range n {
		sw.Ports = append(sw.Ports, sysfstest.Port{Address: at(bus+1, i), Secondary: bus + 2 + i})
	}
	t.AddSwitch(sw)
	t.Devices[name] = sw.Upstream
}

// connectX returns a ConnectX-7 with 16 VFs on mlx5_core. Its VFs are on its own
// bus, right behind it.
func connectX(a pci.Address) sysfstest.Function {
	f := sysfstest.NIC(a)
	f.Vendor, f.Device, f.SubVendor, f.SubDevice = 0x15b3, 0x1021, 0x15b3, 0x0041
	f.Class, f.Revision, f.Driver, f.ResetMethods = pci.ClassEthernet<<8, 0, "mlx5_core", []string{"flr", "bus"}
	f.BARs = []device.BAR{{Index: 0, Size: 32 << 20, Prefetchable: true, Is64: true}}
	f.Link = &device.Link{Speed: "32.0 GT/s PCIe", Width: 16, MaxSpeed: "32.0 GT/s PCIe", MaxWidth: 16}
	f.Capabilities.SRIOV = &pci.SRIOV{TotalVFs: 16, VFDevice: 0x101e}
	f.SRIOV = &sysfstest.SRIOV{Offset: 1, Stride: 1, VFs: 16, BARs: []device.BAR{{Index: 0, Size: 2 << 20, Prefetchable: true, Is64: true}}}
	return f
}

// nameNIC enters a PF and its VFs.
func (t *Tree) nameNIC(name string, pf pci.Address) {
	t.Devices[name] = pf
	for i, vf := range t.VFs(pf) {
		t.Devices[fmt.Sprintf("%s/vf%d", name, i)] = vf
	}
	t.ShowPF(pf, name)
}

// at returns a function 0 in domain 0.
func at(bus, dev uint8) pci.Address { return pci.Address{Bus: bus, Device: dev} }

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
	t.Own("run/nvidia-fabricmanager", "40700", 0, 0)
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
