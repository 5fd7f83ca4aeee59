package check_test

import (
	"os"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// cgroupOf returns the directory of a process' cgroup.
func cgroupOf(t *board.Tree, p journal.Process) string {
	t.TB.Helper()
	return "sys/fs/cgroup" + strings.TrimSpace(strings.TrimPrefix(t.Text(procOf(p)+"/cgroup"), "0::"))
}

func pinningFaults() []fault {
	vmm := func(t *board.Tree) journal.Process { return record(t, "t1", "train").Sandbox.VMM }
	unbound := func(t *board.Tree) { t.Put(path.Dir(cgroupOf(t, vmm(t)))+"/memory.max", "max\n") }
	return []fault{
		{rule: "VFIO-018", about: "a pod without a limit", board: board.Server, plant: unbound},
		{rule: "VFIO-018", about: "a VMM outside of its pod", board: board.Server, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "0::/kata_overhead/1\n")
			t.Put("sys/fs/cgroup/kata_overhead/1/memory.max", "max\n")
		}},
		{rule: "VFIO-018", about: "no limit by cgroup v1", board: board.Server, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "12:cpu,memory:/kata\n1:name=systemd:/kata\n0::/\n")
			t.Put("sys/fs/cgroup/memory/kata/memory.limit_in_bytes", "9223372036854771712\n")
		}},
		{rule: "VFIO-018", about: "a limit by cgroup v1", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "12:memory:/kata/pod\n0::/\n")
			t.Put("sys/fs/cgroup/memory/kata/pod/memory.limit_in_bytes", "9223372036854771712\n")
			t.Put("sys/fs/cgroup/memory/kata/memory.limit_in_bytes", "4294967296\n")
		}},
		{rule: "VFIO-018", about: "neither the privilege nor an endless limit to lock memory", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			unbound(t)
			dir := procOf(vmm(t))
			t.Put(dir+"/status", strings.Replace(t.Text(dir+"/status"), "000001ffffffffff", "00000000a80425fb", 1))
			t.Put(dir+"/limits", strings.Replace(t.Text(dir+"/limits"), "unlimited ", "8388608   ", 1))
		}},
		{rule: "VFIO-018", about: "a cgroup that is not in sight", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "0::/../../kubepods-pod1.slice/x.scope\n")
		}},
		{rule: "VFIO-018", about: "a cgroup that is gone", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete(cgroupOf(t, vmm(t)))
		}},
		{rule: "VFIO-018", about: "no processes to be seen", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			_ = os.Remove(t.Path("proc/1/ns/pid"))
		}},
	}
}
