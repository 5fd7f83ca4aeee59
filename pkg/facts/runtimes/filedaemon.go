package runtimes

import (
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// FileDaemon is a running virtiofsd.
type FileDaemon struct {
	PID int
	// Cmdline is the command line, with spaces between its words.
	Cmdline facts.Fact
	// Capabilities is its effective capability set, in hexadecimal.
	Capabilities facts.Fact
}

// capMknod is CAP_MKNOD's bit (include/uapi/linux/capability.h).
const capMknod = 27

// HasMknod reports whether the daemon has CAP_MKNOD; known is false if its capabilities could not be read.
func (d *FileDaemon) HasMknod() (has, known bool) {
	set, err := strconv.ParseUint(d.Capabilities.Value, 16, 64)
	return set&(1<<capMknod) != 0, d.Capabilities.OK() && err == nil
}

// FileDaemons returns the running virtiofsds. A virtiofsd whose child is also a virtiofsd only waits for that child, which serves
// the VM in its sandbox, and is left out. So are other processes that are known to be in another PID namespace than the node's: a
// container's process can have the name of a virtiofsd.
func FileDaemons(n *facts.Node) []FileDaemon {
	found := processes(n, "virtiofsd")
	ofNode := map[string]bool{}
	for _, p := range found {
		ofNode[strconv.Itoa(p.pid)] = !inContainer(n, p.pid)
	}
	var all []FileDaemon
	waits := map[string]bool{}
	for _, p := range found {
		status := n.Read(sysfs.Process(p.pid, "status"))
		parent := statusField(status, "PPid").Value
		// The sandbox of a virtiofsd has its own PID namespace. The parent of a process shows what started it, and can't be forged.
		if !ofNode[strconv.Itoa(p.pid)] && !ofNode[parent] {
			continue
		}
		waits[parent] = true
		all = append(all, FileDaemon{PID: p.pid, Cmdline: p.cmdline, Capabilities: statusField(status, "CapEff")})
	}
	serving := all[:0]
	for _, d := range all {
		if !waits[strconv.Itoa(d.PID)] {
			serving = append(serving, d)
		}
	}
	return serving
}

// statusField returns the first value of a field of proc/<pid>/status (proc_pid_status(5)).
func statusField(status facts.Fact, name string) facts.Fact {
	f := status
	value, has := sysfs.StatusField(status.Value, name)
	if fields := strings.Fields(value); has && len(fields) > 0 {
		f.Value = fields[0]
		return f
	}
	f.Value = ""
	if f.Status == facts.Present || f.Status == facts.Absent {
		f.Status, f.Err = facts.Broken, "it has no "+name
	}
	return f
}
