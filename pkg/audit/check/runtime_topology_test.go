package check_test

import (
	"os"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func topologyFaults() []fault {
	// The GPUs of the server are on node 0, but gpu1.
	mapping := func(about, settings string, state finding.State) fault {
		return fault{rule: "RT-038", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Put("sys/bus/pci/devices/"+t.Devices["gpu1"].String()+"/numa_node", "1\n")
			t.AddToKata("[hypervisor.qemu]\n" + settings)
		}}
	}
	// A VM has the devices by nodes of their own.
	byIOMMUFD := func(about, release string, state finding.State, devices ...string) fault {
		return fault{rule: "RT-039", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Put("proc/sys/kernel/osrelease", release+"\n")
			files := []string{"anon_inode:kvm-vm", "/dev/iommu"}
			for _, device := range devices {
				files = append(files, ownNode(t, device))
			}
			t.Start(board.Process{Comm: "qemu-system-x86", Files: files})
		}}
	}
	const old, recent = "6.18.3", "6.19.1"
	return []fault{
		mapping("a GPU's node is in no entry", "enable_numa = true\nnuma_mapping = ['0', '2-3']\n", ""),
		mapping("each node has an entry", "enable_numa = true\nnuma_mapping = ['0', '1-3']\n", finding.Pass),
		mapping("one entry has all", "enable_numa = true\nnuma_mapping = ['0-1']\n", finding.Pass),
		mapping("Kata chooses", "enable_numa = true\nnuma_mapping = []\n", finding.Pass),
		mapping("a mapping that is off", "enable_numa = false\nnuma_mapping = ['0']\n", finding.Pass),
		{rule: "RT-038", about: "the Rust runtime", board: board.Server, state: finding.NotApplicable, plant: func(t *board.Tree) {
			rustRuntime(t)
			t.AddToKata("[hypervisor.qemu]\nenable_numa = true\nnuma_mapping = ['7']\n")
		}},
		byIOMMUFD("two GPUs", old, "", "gpu0", "gpu1"),
		byIOMMUFD("a GPU and a VF", old, "", "gpu1", "nic0/vf0"),
		byIOMMUFD("two GPUs on a kernel that can", recent, finding.Manual, "gpu0", "gpu1"),
		byIOMMUFD("a GPU alone", old, finding.Pass, "gpu1"),
	}
}

// ownNode is the node that a function on VFIO has beside its group's.
func ownNode(t *board.Tree, device string) string {
	t.TB.Helper()
	class := sysfs.FunctionPath(t.Devices[device]) + "/vfio-dev"
	names, err := os.ReadDir(t.Path(class))
	if err != nil || len(names) != 1 {
		t.TB.Fatalf("%s has the VFIO devices %v, %v; want one", device, names, err)
	}
	t.Put(class+"/"+names[0].Name()+"/dev", "511:7\n") // without it, the kernel offers no node
	return "/dev/vfio/devices/" + names[0].Name()
}

// rustRuntime has the handler run Kata's Rust runtime.
func rustRuntime(t *board.Tree) {
	t.Put(board.ContainerdDropIn, strings.ReplaceAll(t.Text(board.ContainerdDropIn), "/opt/kata/bin/", "/opt/kata/runtime-rs/bin/"))
}
