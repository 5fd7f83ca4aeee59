package check_test

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

const fabricConfig = "usr/share/nvidia/nvswitch/fabricmanager.cfg"

func gpuFaults() []fault {
	return []fault{
		{rule: "GPU-001", about: "bare metal mode", board: board.Fabric, plant: func(t *board.Tree) { t.Put(fabricConfig, "FABRIC_MODE=0\n") }},
		{rule: "GPU-001", about: "the last setting counts", board: board.Fabric, plant: func(t *board.Tree) { t.Put(fabricConfig, "FABRIC_MODE=1\n FABRIC_MODE = 0\n") }},
		{rule: "GPU-001", about: "no configuration to see", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) { t.Delete(fabricConfig) }},
		{rule: "GPU-001", about: "one tenant has all", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal")
			t.Give("t1", "all", t.Devices["gpu0"], t.Devices["gpu1"], t.Devices["gpu2"], t.Devices["gpu3"])
			t.Put(fabricConfig, "FABRIC_MODE=0\n")
		}},
		{rule: "GPU-002", about: "three GPUs", board: board.Fabric, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal")
			t.Give("t1", "three", t.Devices["gpu0"], t.Devices["gpu1"], t.Devices["gpu2"])
		}},
		{rule: "GPU-002", about: "only Fabric Manager knows", board: board.Fabric, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "GPU-002", about: "one tenant has all", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal")
			t.Give("t1", "all", t.Devices["gpu0"], t.Devices["gpu1"], t.Devices["gpu2"], t.Devices["gpu3"])
		}},
		{rule: "GPU-003", about: "configured for all", board: board.Fabric, plant: func(t *board.Tree) {
			t.Put(fabricConfig, "FABRIC_MODE=1\nFM_CMD_BIND_INTERFACE=0.0.0.0\n")
		}},
		{rule: "GPU-003", about: "listens to all", board: board.Fabric, plant: func(t *board.Tree) {
			t.Put("proc/1/net/tcp", "  sl  local_address rem_address   st\n   0: 00000000:1A0A 00000000:0000 0A 00000000:00000000\n")
		}},
		{rule: "GPU-003", about: "listens to all by IPv6", board: board.Fabric, plant: func(t *board.Tree) {
			t.Put("proc/1/net/tcp6", "   0: "+strings.Repeat("0", 32)+":1A0A 0:0 0A 0\n")
		}},
		{rule: "GPU-003", about: "a port that is none", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(fabricConfig, "FABRIC_MODE=1\nFM_CMD_PORT_NUMBER=66666\n")
		}},
		{rule: "GPU-004", about: "a tenant has a switch", board: board.Fabric, device: "nvswitch0", plant: func(t *board.Tree) {
			t.Give("t1", "switch", t.Devices["nvswitch0"])
		}},
		{rule: "GPU-005", about: "two of a model", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "GPU-006", about: "two tenants in a hive", board: board.Server, plant: func(t *board.Tree) {
			t.AddHive("4711", 0x81, 0x91)
			t.Give("t3", "a", t.Devices["xgmi0"])
			t.Give("t4", "b", t.Devices["xgmi1"])
		}},
		{rule: "GPU-006", about: "two tenants, and no hive to see", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddHive("4711", 0x81, 0x91)
			for _, name := range []string{"xgmi0", "xgmi1"} {
				a := t.Devices[name].String()
				t.Delete("sys/bus/pci/devices/" + a + "/xgmi_hive_info")
				t.Delete("sys/bus/pci/devices/" + a + "/driver")
				t.Give("tenant-of-"+name, "c", t.Devices[name])
			}
		}},
		{rule: "GPU-006", about: "one tenant has the hive", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.AddHive("4711", 0x81, 0x91)
			t.Give("t3", "a", t.Devices["xgmi0"], t.Devices["xgmi1"])
		}},
		{rule: "GPU-008", about: "on VFIO", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "GPU-009", about: "mediated devices", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			gpu := t.Devices["gpu0"].String()
			t.Put("sys/class/mdev_bus/"+gpu+"/mdev_supported_types/nvidia-1/name", "x\n")
			t.Put("sys/bus/pci/devices/"+gpu+"/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001/uevent", "")
		}},
		{rule: "GPU-009", about: "a vGPU that no claim has", board: board.Server, plant: func(t *board.Tree) { addVGPU(t) }},
		{rule: "GPU-009", about: "a vGPU of a claim", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) { t.Give("t3", "a", addVGPU(t)) }},
		{rule: "GPU-009", about: "vGPUs of two tenants", board: board.Server, plant: func(t *board.Tree) {
			vf := addVGPU(t)
			t.Give("t3", "a", vf)
			t.Give("t4", "b", t.VFsBeside(vf)[1])
		}},
		{rule: "GPU-010", about: "a driver of the node has one", board: board.Server, device: "gpu1/companion0", plant: func(t *board.Tree) {
			withoutCompanion(t)
			t.GiveBack(t.Devices["gpu1/companion0"])
		}},
		{rule: "GPU-010", about: "a driver of the node has one since the reboot", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			withoutCompanion(t)
			t.GiveBack(t.Devices["gpu1/companion0"])
			stale("t2", "serve")(t)
		}},
		{rule: "GPU-010", about: "another claim has one", board: board.Server, device: "gpu1/companion0", plant: func(t *board.Tree) {
			withoutCompanion(t)
			t.Give("t3", "music", t.Devices["gpu1/companion0"])
		}},
	}
}

// addVGPU adds a GPU for vGPUs, and returns a VF that is one.
// giveSlice adds an Intel GPU with VFs, and gives one to a tenant, with its bounds as the record and as the kernel has them.
func giveSlice(t *board.Tree, recorded, now string) {
	pf, vfs := t.AddXeHost(0x91, 2)
	rec := t.Give("t3", "a", vfs[1])
	fn, _ := rec.Plan.Function(vfs[1])
	for _, name := range []string{plan.XeExecQuantum, plan.XePreemptTimeout} {
		if recorded != "" {
			fn.Settings = append(fn.Settings, plan.Setting{Provider: plan.ProviderXe, Name: name, Want: recorded, Applied: recorded, Found: "0"})
		}
		t.Put("sys/bus/pci/devices/"+pf.String()+"/"+sysfstest.XeValue(2, name), "20\n")
	}
	t.Put("sys/bus/pci/devices/"+pf.String()+"/"+sysfstest.XeValue(2, plan.XeExecQuantum), now+"\n")
	t.Save(rec)
}

func sliceFaults() []fault {
	return []fault{
		{rule: "GPU-022", about: "no bound, as the class accepts", board: board.Server, plant: func(t *board.Tree) { giveSlice(t, "", "0") }},
		{rule: "GPU-022", about: "the bound was removed", board: board.Server, plant: func(t *board.Tree) { giveSlice(t, "20", "0") }},
		{rule: "GPU-022", about: "the bound was changed", board: board.Server, plant: func(t *board.Tree) { giveSlice(t, "20", "4000") }},
		{rule: "GPU-022", about: "no bound since the reboot", board: board.Server, state: finding.NotApplicable, plant: all(
			func(t *board.Tree) { giveSlice(t, "20", "0") }, stale("t3", "a"))},
		{rule: "GPU-022", about: "no bound after the reset failed", board: board.Server, state: finding.NotApplicable, plant: all(
			func(t *board.Tree) { giveSlice(t, "20", "0") }, became(journal.Quarantined, "t3", "a"))},
		{rule: "GPU-022", about: "as the claim set it", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) { giveSlice(t, "20", "20") }},
		{rule: "GPU-022", about: "as an operator set it", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) { giveSlice(t, "", "20") }},
		{rule: "GPU-022", about: "free VFs", board: board.Server, state: finding.NotApplicable, plant: func(t *board.Tree) { t.AddXeHost(0x91, 2) }},
	}
}

func addVGPU(t *board.Tree) pci.Address {
	_, vfs := t.AddVGPUHost(0x81, 2, sysfstest.VGPUType{ID: 1428, Name: "NVIDIA H200X-70C", GiB: 70, Max: 2})
	t.Put("sys/bus/pci/devices/"+vfs[0].String()+"/nvidia/current_vgpu_type", "1428\n")
	return vfs[0]
}

// withoutCompanion has a claim that took a GPU without its first companion.
func withoutCompanion(t *board.Tree) {
	t.Delete("var/lib/kata-vfio/journal")
	rec := t.Give("t2", "serve", t.Devices["gpu1"])
	rec.Plan.Functions = slices.DeleteFunc(rec.Plan.Functions, func(f plan.Function) bool { return f.Address == t.Devices["gpu1/companion0"] })
	t.Save(rec)
}

// gpuInContainerFaults give a tenant GPUs for which Kata's runtimes have no kind of CDI device, and some for which they have one.
func gpuInContainerFaults() []fault {
	display := func(about string, state finding.State, vendor pci.ID, class pci.Class, settings func(*board.Tree)) fault {
		return fault{rule: "GPU-015", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.AddRootPort(0x81)
			gpu := sysfstest.GPU(pci.Address{Bus: 0x81})
			gpu.Vendor, gpu.Class = vendor, class
			t.Add(gpu)
			t.Give("t3", "a", gpu.Address)
			settings(t)
		}}
	}
	kata := func(text string) func(*board.Tree) { return func(t *board.Tree) { t.AddToKata(text) } }
	rust := func(t *board.Tree) {
		t.AddToContainerd(kataGPU + "runtime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'\n")
	}
	return []fault{
		display("AMD's accelerator", finding.Fail, 0x1002, 0x120000, kata("")),
		display("AMD's VGA controller", finding.Fail, 0x1002, 0x030000, kata("")),
		display("AMD's VGA controller, Rust", finding.Pass, 0x1002, 0x030000, rust),
		display("Intel's display controller, Rust", finding.Fail, 0x8086, 0x038000, rust),
		display("NVIDIA's 3D controller", finding.Pass, 0x10de, 0x030200, kata("")),
		display("pods name devices", finding.Pass, 0x1002, 0x120000, kata("[agent.kata]\nvisible_cdi_devices = true\n")),
		display("VFIO nodes in guests", finding.Pass, 0x1002, 0x120000, kata("[runtime]\nvfio_mode = 'vfio'\n")),
		display("a file that Kata can't parse", finding.Unknown, 0x1002, 0x120000, kata("[runtime\n")),
	}
}
