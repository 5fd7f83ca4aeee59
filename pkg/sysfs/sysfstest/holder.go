package sysfstest

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Holder is a process that has a device node open.
type Holder struct {
	PID  int
	Comm string
	Node string
	// Container is the id of the container it runs in, 64 hexadecimal digits;
	// empty if there is none.
	Container string

	k *Kernel
	// group is the group whose DMA it owns, nil if the node does not belong to VFIO. device is the only function that it
	// has open, nil for all VFIO members of the group.
	group    *group
	device   *function
	released chan struct{}
	once     sync.Once
	// unseen is set if no process in proc has the file.
	unseen bool
}

// Hold makes a process open a device node, such as "/dev/vfio/15" or "/dev/dri/card0". The process appears in proc. If
// the node belongs to VFIO, its functions can't be unbound until the process releases it, and no host driver can join
// the group. The node must exist, and the group must be viable. If the PID belongs to a process of [Kernel.Run], that
// process opens the node, and comm and container are ignored.
func (k *Kernel) Hold(node string, pid int, comm, container string) *Holder {
	if k.tb != nil {
		k.tb.Helper()
	}
	h := &Holder{PID: pid, Comm: comm, Node: node, Container: container, k: k, released: make(chan struct{})}
	k.build(func() { k.hold(h) })
	return h
}

// HoldUnseen is [Kernel.Hold] with a file that proc does not show: the file's descriptor is in flight in a socket, or
// the process that had it is still closing it.
func (k *Kernel) HoldUnseen(node string) *Holder {
	if k.tb != nil {
		k.tb.Helper()
	}
	h := &Holder{PID: -1, Node: node, k: k, released: make(chan struct{}), unseen: true}
	k.build(func() { k.hold(h) })
	return h
}

// Exclude opens the groups of those functions that are on VFIO drivers, until end is called. It returns EBUSY if a
// process has one of them open. hotReset is [Kernel.HotReset] of the functions.
func (k *Kernel) Exclude(ctx context.Context, set []pci.Address) (hotReset func() error, end func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var groups []*group
	for _, a := range set {
		f := k.functions[a]
		if f == nil || f.driver == nil || !f.driver.servesVFIO(f) || f.group == nil || slices.Contains(groups, f.group) {
			continue
		}
		if f.group.excluded || k.owned(f.group) {
			return nil, nil, fmt.Errorf("open %s: %w", f.group.node(), unix.EBUSY)
		}
		groups = append(groups, f.group)
	}
	mark := func(open bool) {
		for _, g := range groups {
			g.excluded = open
		}
	}
	mark(true)
	end = func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		mark(false)
	}
	return func() error { return k.HotReset(ctx, set) }, end, nil
}

// CloseGroups closes the groups that [Kernel.Exclude] has opened: the process that had them is dead.
func (k *Kernel) CloseGroups() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.groups {
		g.excluded = false
	}
}

// hold lets h open its node. Callers hold mu.
func (k *Kernel) hold(h *Holder) {
	if k.holders[h.PID] != nil {
		k.wrong("hold %s: there is a process %d already", h.Node, h.PID)
		return
	}
	if _, ok := k.nodes[h.Node]; !ok {
		k.wrong("hold %s: there is no such node", h.Node)
		return
	}
	h.group, h.device = k.opened(h.Node)
	if h.group != nil {
		if err := h.group.notViable(); err != nil {
			k.wrong("hold %s: %w", h.Node, err)
			return
		}
		if h.group.excluded {
			k.wrong("hold %s: %w", h.Node, unix.EBUSY)
			return
		}
	}
	k.holders[h.PID] = h
	if h.unseen {
		return
	}
	if !k.exists(path.Join("proc", strconv.Itoa(h.PID))) {
		k.startProcess(h.PID, h.Comm, h.Container)
	}
	k.symlink(h.fd(), h.Node)
}

// opened returns the target of a VFIO node: a group, or one function of a group.
// Callers hold mu.
func (k *Kernel) opened(node string) (*group, *function) {
	for _, g := range k.groups {
		if g.drivers > 0 && g.node() == node {
			return g, nil
		}
	}
	for _, f := range k.functions {
		if f.vfio != nil && f.vfio.open && f.vfio.node() == node {
			return f.group, f
		}
	}
	return nil, nil
}

// fd is the link in proc to the open node.
func (h *Holder) fd() string { return path.Join("proc", strconv.Itoa(h.PID), "fd", "17") }

// Release ends the process. It may be called again.
func (h *Holder) Release() {
	h.once.Do(func() {
		h.k.mu.Lock()
		defer h.k.mu.Unlock()
		if h.k.holders[h.PID] == h {
			delete(h.k.holders, h.PID)
			if !h.unseen {
				h.k.remove(path.Join("proc", strconv.Itoa(h.PID)))
			}
		}
		close(h.released)
	})
}

// Holders returns the processes that hold nodes now, by PID.
func (k *Kernel) Holders() []*Holder {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Holder, 0, len(k.holders))
	for _, h := range k.holders {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *Holder) int { return cmp.Compare(a.PID, b.PID) })
	return all
}

// await returns when no process has f open through VFIO. Callers hold f's lock.
func (k *Kernel) await(f *function) {
	for h := k.holder(f); h != nil; h = k.holder(f) {
		<-h.released
	}
}

// holder returns a process that has f open, or nil.
func (k *Kernel) holder(f *function) *Holder {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.vfio == nil || f.gone {
		return nil
	}
	for _, h := range k.holders {
		if h.device == f || h.group != nil && h.group == f.group && h.device == nil {
			return h
		}
	}
	return nil
}

// startProcess creates a process in proc, with the files for its identity and start time. Callers hold mu.
func (k *Kernel) startProcess(pid int, comm, container string) {
	dir := path.Join("proc", strconv.Itoa(pid))
	k.mkdir(path.Join(dir, "fd"))
	k.put(path.Join(dir, "comm"), comm+"\n", readOnly)
	k.put(path.Join(dir, "stat"), processStat(pid, comm), readOnly)
	k.put(path.Join(dir, "status"), fmt.Sprintf("Name:\t%s\nPid:\t%d\n", comm, pid), readOnly)
	k.put(path.Join(dir, "cgroup"), "0::"+cgroup(container)+"\n", readOnly)
	k.symlink(path.Join(dir, "fd", "0"), "/dev/null")
}

// processStat returns the 52 fields of proc/<pid>/stat; the 22nd is the start
// time in clock ticks since boot, here a hundred for each PID.
func processStat(pid int, comm string) string {
	return formatStat(pid, 1, 0, StartTime(pid), comm)
}

func formatStat(pid, parent, group int, start uint64, comm string) string {
	fields := slices.Repeat([]string{"0"}, 52)
	fields[0], fields[1], fields[2] = strconv.Itoa(pid), "("+comm+")", "S"
	fields[3], fields[4] = strconv.Itoa(parent), strconv.Itoa(group)
	fields[21] = strconv.FormatUint(start, 10)
	return strings.Join(fields, " ") + "\n"
}

// cgroup returns the path that containerd and systemd give a container, or
// that of a process outside of any.
func cgroup(container string) string {
	if container == "" {
		return "/system.slice/qemu.service"
	}
	return "/kubepods.slice/kubepods-besteffort.slice/cri-containerd-" + container + ".scope"
}

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

// StartTime is the start time of a process of [Kernel.Hold] by the kernel, in clock ticks since boot.
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
		k.put(path.Join(dir, "stat"), formatStat(p.PID, p.Parent, p.Group, p.Start, p.Comm), readOnly)
		k.put(path.Join(dir, "cmdline"), strings.Join(append(p.Args, ""), "\x00"), readOnly)
		k.symlink(path.Join(dir, "cwd"), cmp.Or(p.Dir, "/"))
	})
}

// Kill ends a process of [Kernel.Run].
func (k *Kernel) Kill(pid int) {
	k.build(func() { k.remove(path.Join("proc", strconv.Itoa(pid))) })
}
