package board

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Process is a process of the node, as proc shows it.
type Process struct {
	PID       int
	Comm      string
	Exe       string
	Arguments []string
	UID       int
	// Parent is 1 where it is zero.
	Parent int
	// Container is the id of its container and Pod the UID of its pod; empty for a
	// process of the node itself.
	Container, Pod string
	// Files are what it has open, as the texts of the links in proc: "/dev/vfio/15",
	// "anon_inode:kvm-vm".
	Files []string
	// Maps are the files that it has mapped.
	Maps []string
	// Mems are the NUMA nodes that it may have memory of, "0-1" where empty.
	Mems string
	// MemoryMax is what its cgroup bounds its memory to; "" is 128 GiB for one in a
	// pod, and no bound for one that is in none.
	MemoryMax string
}

// startTime is when processes start, in clock ticks after boot.
const startTime = 8675309

// The namespaces of the node's own processes.
const (
	pidNamespace   = "pid:[4026531836]"
	mountNamespace = "mnt:[4026531841]"
)

// nextPID returns a number that no process had.
func (t *Tree) nextPID() int {
	t.processes++
	return 4710 + t.processes
}

// Start adds a process, with a number of its own where it has none.
func (t *Tree) Start(p Process) journal.Process {
	t.TB.Helper()
	if p.PID == 0 {
		p.PID = t.nextPID()
	}
	dir := "proc/" + strconv.Itoa(p.PID)
	t.Put(dir+"/comm", p.Comm+"\n")
	t.Put(dir+"/stat", fmt.Sprintf("%d (%s) S 1%s %d 0\n", p.PID, p.Comm, strings.Repeat(" 0", 17), startTime))
	t.Put(dir+"/status", fmt.Sprintf("Name:\t%s\nPid:\t%d\nPPid:\t%d\nUid:\t%[4]d\t%[4]d\t%[4]d\t%[4]d\nCapEff:\t000001ffffffffff\nMems_allowed_list:\t%s\n", p.Comm, p.PID, max(p.Parent, 1), p.UID, p.mems()))
	t.Put(dir+"/cmdline", strings.Join(p.Arguments, "\x00")+"\x00")
	t.Put(dir+"/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"+
		"Max locked memory         unlimited            unlimited            bytes     \n")
	t.Put(dir+"/cgroup", "0::"+p.cgroup()+"\n")
	t.boundMemory(&p)
	t.Put(dir+"/maps", maps(p.Maps))
	if p.Exe != "" {
		t.Symlink(dir+"/exe", p.Exe)
	}
	if p.Container == "" {
		t.Symlink(dir+"/ns/pid", pidNamespace)
		t.Symlink(dir+"/ns/mnt", mountNamespace)
	}
	t.Symlink(dir+"/fd/0", "/dev/null")
	for i, file := range p.Files {
		t.Symlink(fmt.Sprintf("%s/fd/%d", dir, i+3), file)
		t.Put(fmt.Sprintf("%s/fdinfo/%d", dir, i+3), "pos:\t0\nflags:\t02000002\n")
	}
	return journal.Process{PID: p.PID, StartTime: startTime}
}

func (p *Process) mems() string {
	if p.Mems == "" {
		return "0-1"
	}
	return p.Mems
}

// cgroup returns the path that containerd and systemd give a sandbox.
func (p *Process) cgroup() string {
	if p.Container == "" {
		return "/system.slice/" + p.Comm + ".service"
	}
	pod := strings.ReplaceAll(p.Pod, "-", "_")
	return "/kubepods.slice/kubepods-pod" + pod + ".slice/cri-containerd-" + p.Container + ".scope"
}

// boundMemory sets the bounds of a process' cgroups: as the kubelet does, the pod's
// and not the container's.
func (t *Tree) boundMemory(p *Process) {
	bound := p.MemoryMax
	if bound == "" {
		bound = "max"
		if p.Pod != "" {
			bound = "137438953472"
		}
	}
	leaf := "sys/fs/cgroup" + p.cgroup()
	t.Put(leaf+"/memory.max", "max\n")
	t.Put(path.Dir(leaf)+"/memory.max", bound+"\n")
}

func maps(files []string) string {
	var text strings.Builder
	text.WriteString("555555554000-555555b2e000 r--p 00000000 08:01 1835020 /usr/bin/program\n")
	for i, file := range files {
		fmt.Fprintf(&text, "7f%010x-7f%010x rw-s 00000000 00:15 %d %s\n", i<<24, i<<24+1<<20, 4000+i, file)
	}
	return text.String()
}

// Symlink makes a link with the very text.
func (t *Tree) Symlink(name, text string) {
	t.TB.Helper()
	name = t.Path(name)
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		t.TB.Fatal(err)
	}
	if err := os.Symlink(text, name); err != nil {
		t.TB.Fatal(err)
	}
}
