package sysfstest

import (
	"cmp"
	"path"
	"strconv"
	"strings"
)

// Process is a process that has no device node open.
type Process struct {
	PID  int
	Comm string
	// Parent is 1 when it is 0. Group is the process group.
	Parent, Group int
	// Start is the start time in clock ticks since boot, [StartTime] of the PID when it is 0.
	Start uint64
	// Dir is the working directory, "/" when it is empty. Args are the command and its arguments.
	Dir  string
	Args []string
}

// StartTime is when the kernel says that a process of [Kernel.Hold] started, in clock
// ticks since boot.
func StartTime(pid int) uint64 { return uint64(pid) * 100 }

// Run starts a process, in place of one with its PID. It runs until [Kernel.Kill].
func (k *Kernel) Run(p Process) {
	if p.Parent == 0 {
		p.Parent = 1
	}
	if p.Start == 0 {
		p.Start = StartTime(p.PID)
	}
	k.build(func() {
		dir := path.Join("proc", strconv.Itoa(p.PID))
		k.remove(dir)
		k.startProcess(p.PID, p.Comm, "")
		k.put(path.Join(dir, "stat"), processStatOf(p.PID, p.Parent, p.Group, p.Start, p.Comm), readOnly)
		k.put(path.Join(dir, "cmdline"), strings.Join(append(p.Args, ""), "\x00"), readOnly)
		k.symlink(path.Join(dir, "cwd"), cmp.Or(p.Dir, "/"))
	})
}

// Kill ends a process of [Kernel.Run].
func (k *Kernel) Kill(pid int) {
	k.build(func() { k.remove(path.Join("proc", strconv.Itoa(pid))) })
}
