package check_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

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
