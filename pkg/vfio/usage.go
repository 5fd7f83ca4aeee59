package vfio

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Process says who a process is.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// StartTime is in clock ticks since boot, as that of [Holder].
	StartTime uint64 `json:"startTime"`
	// Parent is the PID of its parent.
	Parent int `json:"parent"`
	// Container is the id of the process' container, empty outside of any.
	Container string `json:"container,omitempty"`
	// Cgroup is the text of proc/<pid>/cgroup.
	Cgroup string `json:"cgroup,omitempty"`
	// UID is the effective user ID, -1 if unknown.
	UID int `json:"uid"`
	// Exe is the path of its program, and Arguments are its command line. The process can change both; they are empty
	// if unknown.
	Exe       string   `json:"exe,omitempty"`
	Arguments []string `json:"arguments,omitempty"`
}

// InPod reports whether the process is in a cgroup of the pod, by the names that
// the kubelet's cgroup drivers give it: "pod<uid>", with systemd
// "...-pod<uid with _ for ->.slice".
func (p *Process) InPod(uid string) bool {
	return uid != "" && (strings.Contains(p.Cgroup, "pod"+uid) ||
		strings.Contains(p.Cgroup, "pod"+strings.ReplaceAll(uid, "-", "_")))
}

// String returns the process as a phrase: "qemu-system-x86 (pid 4711, container
// 3f2c..., /usr/bin/qemu-system-x86_64)".
func (p *Process) String() string {
	text := fmt.Sprintf("%s (pid %d", p.Comm, p.PID)
	if p.Container != "" {
		text += fmt.Sprintf(", container %.12s", p.Container)
	}
	if p.Exe != "" {
		text += ", " + p.Exe
	}
	return text + ")"
}

// Usage is how one process uses the node's PCI functions.
type Usage struct {
	Process
	// Nodes are the device nodes of VFIO groups and functions that the process has open, sorted. They have the names
	// that they have on the node itself.
	Nodes []string `json:"nodes,omitempty"`
	// Devices are the functions whose VFIO device the process has open, if the kernel says which function an open
	// device is.
	Devices []pci.Address `json:"devices,omitempty"`
	// Unnamed is the number of open VFIO devices for which the kernel does not say that.
	Unnamed int `json:"unnamed,omitempty"`
	// VM says that the process has a virtual machine of KVM or of Hyper-V's root partition open, so it is a VMM.
	VM bool `json:"vm,omitempty"`
	// Registers are the functions whose registers the process has mapped without VFIO, through the resource files of
	// sysfs, by address.
	Registers []pci.Address `json:"registers,omitempty"`
}

// Holds reports whether the process has a node or a device of VFIO open.
func (u *Usage) Holds() bool { return len(u.Nodes)+len(u.Devices)+u.Unnamed > 0 }

// Usages inspects all processes once. It returns, by PID, those that have nodes or devices of VFIO open, or registers
// of functions mapped. If it can't inspect all processes, it returns an error together with what it found. The error
// matches [ErrCannotSee] if the privilege is missing.
//
// The nodes that this process has open are left out, because it opens groups while it resets their functions
// ([Exclude]).
//
// On a live node, Usages needs the same privileges as [Holders]. In a copy of a node, the text of the links decides,
// and the copy counts as complete if it has proc/1/ns/pid.
//
// A process may keep its memory map locked, because a thread hangs in the kernel or because its owner arranged that.
// Usages waits up to a second for each such process and up to ten seconds for all of them, and then counts them as not
// inspected. When ctx ends, all processes that are left count as not inspected.
func Usages(ctx context.Context, fs *sysfs.FS) ([]Usage, error) {
	s, err := newSurvey(fs)
	if err != nil {
		return nil, fmt.Errorf("look at processes: %w", err)
	}
	names, err := fs.ReadDir(sysfs.Proc)
	if err != nil {
		return nil, fmt.Errorf("look at processes: %w", err)
	}
	var all []Usage
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		u, err := s.process(ctx, pid)
		if seen(err) != nil {
			s.hide(pid, err)
		}
		if s.search.live && pid == os.Getpid() {
			u.Nodes = nil
		}
		if u.Holds() || len(u.Registers) > 0 {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b Usage) int { return cmp.Compare(a.PID, b.PID) })
	return all, s.blind()
}
