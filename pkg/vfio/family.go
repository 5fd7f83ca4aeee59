package vfio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Family is [Family] on the node of p.
func (p *Processes) Family(ctx context.Context, pid int, start uint64) ([]Holder, error) {
	return Family(ctx, p.fs, pid, start)
}

// Family returns the process with the PID that started at the given time, in clock ticks since boot, and all its
// descendants, by PID. It returns none if a later process has the PID. If the process has ended, it returns the members
// that are left in the process group: the kernel gives the number of a group to no new process while the group has a
// member. The Node of each is empty.
//
// A process that can't be looked into is [ErrCannotSee].
func Family(ctx context.Context, fs *sysfs.FS, pid int, start uint64) ([]Holder, error) {
	if _, err := newSearch(fs, nil); err != nil { // sees whether proc shows the whole node
		return nil, fmt.Errorf("find descendants of process %d: %w", pid, err)
	}
	all, err := processTree(ctx, fs)
	if err != nil {
		return nil, fmt.Errorf("find descendants of process %d: %w", pid, err)
	}
	first, runs := all[pid]
	if runs && first.start != start {
		return nil, nil
	}
	family, err := all.describe(fs, func(member int) bool {
		return all.descends(member, pid) || !runs && all[member].group == pid
	})
	if err != nil {
		return nil, fmt.Errorf("find descendants of process %d: %w", pid, err)
	}
	return family, nil
}

// Ending returns the process with the PID that started at the given time if it is ending: it has been killed, but a
// thread of it is left. Otherwise it returns none. The open files of such a process may already be gone from proc while
// the kernel still closes them.
func (p *Processes) Ending(_ context.Context, pid int, start uint64) ([]Holder, error) {
	who, err := describe(p.fs, pid)
	if err == nil && who.StartTime == start {
		var stat string
		var ending bool
		if stat, err = p.fs.ReadString(sysfs.Process(pid, "stat")); err == nil {
			ending, err = sysfs.IsEnding(stat)
		}
		if ending {
			who.Node = "a device that the kernel still closes"
			return []Holder{who}, err
		}
	}
	if seen(err) != nil {
		return nil, uninspectable(p.fs, pid, seen(err))
	}
	return nil, nil
}

// Shims is [Shims] on the node of p.
func (p *Processes) Shims(ctx context.Context, sandboxID string) ([]Holder, error) {
	return Shims(ctx, p.fs, sandboxID)
}

// Shims returns the shims of a sandbox and all their descendants, by PID. A shim is a process that works in the
// sandbox's bundle (containerd's <tasks>/<namespace>/<id>, CRI-O's <storage>/overlay-containers/<id>/userdata) or has
// the sandbox's ID as an argument. The Node of each is empty.
//
// A process that can't be looked into is [ErrCannotSee].
func Shims(ctx context.Context, fs *sysfs.FS, sandboxID string) ([]Holder, error) {
	if _, err := newSearch(fs, nil); err != nil { // sees whether proc shows the whole node
		return nil, fmt.Errorf("find shims of sandbox %s: %w", sandboxID, err)
	}
	all, err := processTree(ctx, fs)
	if err != nil {
		return nil, fmt.Errorf("find shims of sandbox %s: %w", sandboxID, err)
	}
	var shims []int
	wait := maxPatience
	for pid := range all {
		of, err := isShim(ctx, fs, &wait, pid, sandboxID)
		if err != nil {
			return nil, fmt.Errorf("find shims of sandbox %s: %w", sandboxID, uninspectable(fs, pid, err))
		}
		if of {
			shims = append(shims, pid)
		}
	}
	family, err := all.describe(fs, func(member int) bool {
		return slices.ContainsFunc(shims, func(shim int) bool { return all.descends(member, shim) })
	})
	if err != nil {
		return nil, fmt.Errorf("find shims of sandbox %s: %w", sandboxID, err)
	}
	return family, nil
}

// isShim reports whether a process works in the sandbox's bundle or has the sandbox's ID as an argument. A working
// directory whose path is too long to be read is not a bundle, and any process may have one.
func isShim(ctx context.Context, fs *sysfs.FS, wait *patience, pid int, sandboxID string) (bool, error) {
	dir := sysfs.Process(pid)
	cwd, err := fs.ReadLink(dir + "/cwd")
	if seen(err) != nil && !errors.Is(err, unix.ENAMETOOLONG) {
		return false, seen(err)
	}
	// containerd's bundle is a directory named by the ID. CRI-O's is userdata in one.
	bundle := strings.TrimSuffix(cwd, deleted)
	if err == nil && (path.Base(bundle) == sandboxID || path.Base(bundle) == "userdata" && path.Base(path.Dir(bundle)) == sandboxID) {
		return true, nil
	}
	args, err := readArguments(ctx, fs, wait, pid)
	return names(args, sandboxID), err
}

// tree is the node's processes by PID.
type tree map[int]relatives

type relatives struct {
	parent, group int
	start         uint64
}

// describe returns the processes that belongs accepts, by PID, without those that have ended meanwhile.
func (all tree) describe(fs *sysfs.FS, belongs func(pid int) bool) ([]Holder, error) {
	var family []Holder
	for _, member := range slices.Sorted(maps.Keys(all)) {
		if !belongs(member) {
			continue
		}
		who, err := describe(fs, member)
		if seen(err) != nil {
			return nil, uninspectable(fs, member, seen(err))
		}
		if err == nil && who.StartTime == all[member].start {
			family = append(family, who)
		}
	}
	return family, nil
}

func processTree(ctx context.Context, fs *sysfs.FS) (tree, error) {
	pids, err := processes(fs)
	if err != nil {
		return nil, err
	}
	all := tree{}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := readRelatives(fs, pid)
		if seen(err) != nil {
			return nil, uninspectable(fs, pid, seen(err))
		}
		if err == nil {
			all[pid] = r
		}
	}
	return all, nil
}

func readRelatives(fs *sysfs.FS, pid int) (r relatives, err error) {
	stat, err := fs.ReadString(sysfs.Process(pid, "stat"))
	if err != nil {
		return r, err
	}
	if r.start, err = sysfs.ParseStartTime(stat); err != nil {
		return r, err
	}
	r.parent, r.group, err = sysfs.ParseParents(stat)
	return r, err
}

// descends reports whether a process is the ancestor or descends from it. The processes are not all read at one moment,
// so a chain of parents may have a loop of reused PIDs.
func (all tree) descends(pid, ancestor int) bool {
	for range len(all) + 1 {
		if pid == ancestor {
			return true
		}
		p, ok := all[pid]
		if !ok {
			return false
		}
		pid = p.parent
	}
	return false
}

// describe returns a process with its name, container and start time.
func describe(fs *sysfs.FS, pid int) (Holder, error) {
	dir := sysfs.Process(pid)
	comm, err := fs.ReadString(dir + "/comm")
	if err != nil {
		return Holder{}, err
	}
	stat, err := fs.ReadString(dir + "/stat")
	if err != nil {
		return Holder{}, err
	}
	start, err := sysfs.ParseStartTime(stat)
	if err != nil {
		return Holder{}, err
	}
	cgroup, err := fs.ReadString(dir + "/cgroup")
	if err != nil {
		return Holder{}, err
	}
	return Holder{PID: pid, Comm: comm, Container: parseContainer(cgroup), StartTime: start}, nil
}

// parseContainer returns the id of the container that a process is in by the
// text of proc/<pid>/cgroup, empty if there is none: the last path element with a
// container's id, as the runtimes name their groups:
//
//	0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-<id>.scope
//	0::/system.slice/docker-<id>.scope
//	0::/kubepods/besteffort/pod1/<id>
func parseContainer(cgroup string) string {
	found := ""
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(line, ":")
		_, group, _ := strings.Cut(rest, ":")
		for element := range strings.SplitSeq(strings.TrimSpace(group), "/") {
			if id, ok := containerID(element); ok {
				found = id
			}
		}
		if found != "" {
			break // the hierarchies of cgroup v1 all say the same
		}
	}
	return found
}

// containerID returns the id in one element: 64 hexadecimal digits, after the
// runtime's name and a dash and before ".scope" with systemd.
func containerID(element string) (string, bool) {
	const length = 64
	element = strings.TrimSuffix(element, ".scope")
	if i := strings.LastIndexAny(element, "-:"); i >= 0 {
		element = element[i+1:]
	}
	if len(element) != length || strings.Trim(element, "0123456789abcdef") != "" {
		return "", false
	}
	return element, true
}

// Abandoned is [Abandoned] on the node of p.
func (p *Processes) Abandoned(ctx context.Context, holders []Holder) (map[int]string, error) {
	return Abandoned(ctx, p.fs, holders)
}

// Abandoned returns the sandboxes of those holders that are VMMs without a shim, by the holder's PID. Deleting the pod
// does not end such a VMM. A process with the sandbox's ID among its arguments counts as a shim, such as the runtime's
// clean-up of the sandbox while it runs. Holders whose command line names no sandbox are left out.
func Abandoned(ctx context.Context, fs *sysfs.FS, holders []Holder) (map[int]string, error) {
	alone := map[int]string{}
	wait := maxPatience
	for _, h := range holders {
		args, err := readArguments(ctx, fs, &wait, h.PID)
		if err != nil {
			return nil, fmt.Errorf("find the sandbox of process %d: %w", h.PID, err)
		}
		if sandbox := findSandboxID(args); sandbox != "" {
			alone[h.PID] = sandbox
		}
	}
	if len(alone) == 0 {
		return nil, nil
	}
	if err := dropServed(ctx, fs, &wait, alone); err != nil {
		return nil, fmt.Errorf("find the shims of %d VMMs: %w", len(alone), err)
	}
	return alone, nil
}

// dropServed removes those VMMs for whose sandbox some process has the ID among its arguments.
func dropServed(ctx context.Context, fs *sysfs.FS, wait *patience, alone map[int]string) error {
	pids, err := processes(fs)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return err
		}
		args, err := readArguments(ctx, fs, wait, pid)
		if err != nil {
			return uninspectable(fs, pid, err)
		}
		for vmm, sandbox := range alone {
			if names(args, sandbox) {
				delete(alone, vmm)
			}
		}
	}
	return nil
}

// readArguments returns the command and the arguments of a process; none of one that has
// ended.
func readArguments(ctx context.Context, fs *sysfs.FS, wait *patience, pid int) ([]string, error) {
	cmdline, err := wait.read(ctx, fs, sysfs.Process(pid, "cmdline"), maxArguments)
	if err != nil {
		return nil, seen(err)
	}
	return sysfs.ParseArguments(cmdline), nil
}

// names reports whether a sandbox's ID is among the arguments.
func names(args []string, sandboxID string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == sandboxID || strings.HasSuffix(arg, "="+sandboxID)
	})
}

// vmDir is where Kata keeps the sockets of each VM, in a directory of the sandbox's ID
// (virtcontainers/persist/fs).
const vmDir = "/run/vc/vm/"

// findSandboxID returns the sandbox's ID by the arguments of its VMM, empty if there is none: both of
// Kata's runtimes name QEMU "sandbox-<id>"; the Go runtime's other VMMs have sockets in vmDir.
func findSandboxID(args []string) string {
	if i := slices.Index(args, "-name"); i >= 0 && i+1 < len(args) {
		if name, ok := strings.CutPrefix(args[i+1], "sandbox-"); ok {
			id, _, _ := strings.Cut(name, ",")
			return id
		}
	}
	for _, arg := range args {
		if _, below, ok := strings.Cut(arg, vmDir); ok {
			id, _, _ := strings.Cut(below, "/")
			return id
		}
	}
	return ""
}
