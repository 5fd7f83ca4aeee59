//go:build lab

package audit_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// sandbox is one as a runtime would name it.
const sandbox = "3f2c0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"

// give prepares a claim of a tenant's, whose name is the claim's UID too, and takes it back at the test's end.
func give(t *testing.T, n *node.Node, tenant string, addresses ...string) {
	t.Helper()
	req := stage.Request(t, tenant, addresses...)
	req.Namespace = tenant
	if _, err := n.Preparer.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), tenant); err != nil {
			t.Error(err)
		}
	})
}

// handOver gives a claim to the sandbox, with the process of its VMM where that is known.
func handOver(t *testing.T, n *node.Node, uid string, vmm int) {
	t.Helper()
	to := journal.Sandbox{ID: sandbox}
	if vmm != 0 {
		to.VMM = journal.Process{PID: vmm, StartTime: startTime(t, vmm)}
	}
	if err := n.Preparer.HandOver(t.Context(), uid, to); err != nil {
		t.Fatal(err)
	}
}

// startTime is field 22 of proc_pid_stat(5), the 20th behind the name.
func startTime(t *testing.T, pid int) uint64 {
	t.Helper()
	stat := kernel.Read(t, fmt.Sprintf("/proc/%d/stat", pid))
	ticks, err := strconv.ParseUint(strings.Fields(stat[strings.LastIndex(stat, ")")+1:])[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ticks
}

// TestHeldFunctionIsInOrder runs a VM with the functions of its claim: the audit sees its process as the kernel shows it, and
// has nothing against it. With device nodes another process can open one while the VM has it, which is found.
func TestHeldFunctionIsInOrder(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", topology.GPU0, topology.VF(topology.PF0, 0))
	nodes := stage.Nodes(t, "tenant-a")
	handOver(t, n, "tenant-a", 0)
	before := stage.Findings(stage.Audit(t))
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	handOver(t, n, "tenant-a", vm.PID())
	want := slices.Concat(before, []string{"fail RST-012 " + topology.GPU0}) // the VM is started without rombar=0, as Kata starts its own
	slices.Sort(want)
	if diff := cmp.Diff(want, stage.Findings(stage.Audit(t))); diff != "" {
		t.Errorf("what the audit says before and while the VM runs (-before +while):\n%s", diff)
	}
	checkUsages(t, vm.PID(), nodes)
	if kernel.Variant(t) == image.IOMMUFD {
		checkStray(t, nodes[0], topology.GPU0, "fail VFIO-010 "+topology.GPU0)
	}
}

// checkUsages compares the audit's look at processes with that of a person, and checks that it is the VM alone.
func checkUsages(t *testing.T, pid int, nodes []string) {
	t.Helper()
	users, seen := stage.Facts(t).Users()
	if !seen.OK() {
		t.Errorf("not all processes were seen: %+v", seen)
	}
	got := map[int]usage{}
	for i := range users {
		got[users[i].PID] = usageOf(&users[i])
	}
	if diff := cmp.Diff(openOnes(t), got); diff != "" {
		t.Errorf("who holds what (-/proc +audit):\n%s", diff)
	}
	slices.Sort(nodes)
	if u := got[pid]; len(got) != 1 || !u.VM || u.Devices != 2 || !slices.Equal(u.Nodes, nodes) || !strings.HasPrefix(u.Comm, "qemu-system") {
		t.Errorf("processes hold %+v; want pid %d with two functions by %q and a VM", got, pid, nodes)
	}
}

// usage is what a process holds.
type usage struct {
	Comm      string
	StartTime uint64
	Exe       string
	Nodes     []string
	// Devices is how many open VFIO devices there are.
	Devices int
	VM      bool
}

func usageOf(u *vfio.Usage) usage {
	return usage{Comm: u.Comm, StartTime: u.StartTime, Exe: u.Exe, Nodes: u.Nodes, Devices: max(len(u.Devices)+u.Unnamed, len(u.Nodes)), VM: u.VM}
}

// openOnes looks at the links in /proc that are named after VFIO.
func openOnes(t *testing.T) map[int]usage {
	t.Helper()
	all := map[int]usage{}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			t.Fatal(err)
		}
		var u usage
		for _, fd := range stage.Files(t, process+"/fd") {
			target, _ := os.Readlink(filepath.Join(process, "fd", fd)) // closed meanwhile
			u.add(target)
		}
		if len(u.Nodes) == 0 {
			continue
		}
		u.Devices = max(u.Devices, len(u.Nodes))
		u.Comm, u.StartTime = kernel.Read(t, process+"/comm"), startTime(t, pid)
		u.Exe, _ = os.Readlink(process + "/exe")
		slices.Sort(u.Nodes)
		all[pid] = u
	}
	return all
}

func (u *usage) add(target string) {
	switch {
	case target == "anon_inode:kvm-vm":
		u.VM = true
	case target == "anon_inode:[vfio-device]":
		u.Devices++
	case strings.HasPrefix(target, "/dev/vfio/") && target != "/dev/vfio/vfio" && !slices.Contains(u.Nodes, target):
		u.Nodes = append(u.Nodes, target)
	}
}

// TestStrayHolderIsFound has a process open the node of a claim whose sandbox is another.
func TestStrayHolderIsFound(t *testing.T) {
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", topology.GPU0)
	handOver(t, n, "tenant-a", 0)
	checkStray(t, stage.Nodes(t, "tenant-a")[0], topology.GPU0)
}

// checkStray checks that a process which opens a node is found: it is not the claim's VMM, and runs no VM.
func checkStray(t *testing.T, dev, address string, more ...string) {
	t.Helper()
	stage.FoundOnlyWhile(t, func() ([]string, func()) {
		pid, letGo := hold(t, dev)
		who := fmt.Sprintf("%s pid %d (sh)", address, pid)
		return append(more, "fail VFIO-009 "+who, "fail VFIO-012 "+who), letGo
	})
}

// hold has a shell open a file, until letGo.
func hold(t *testing.T, path string) (pid int, letGo func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `exec 3<>"$0" && echo held && read word`, path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the holder of %s says %q, %v", path, line, err)
	}
	return cmd.Process.Pid, func() {
		_ = in.Close()
		_ = cmd.Wait() // read's end of file is its failure
	}
}
