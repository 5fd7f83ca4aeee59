package vfio

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Family is [Family] on the node of p.
func (p *Processes) Family(ctx context.Context, pid int, start uint64) ([]Holder, error) {
	return Family(ctx, p.fs, pid, start)
}

// Family returns the process with the PID that started at the time, in clock ticks
// since boot, and all that descend from it, by PID; none of a later process with the
// same PID. Where the process has ended, it returns what is left in its process group:
// the kernel gives a group's number to no new process while the group has a member.
// The Node of each is empty.
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

// Shims is [Shims] on the node of p.
func (p *Processes) Shims(ctx context.Context, sandboxID string) ([]Holder, error) {
	return Shims(ctx, p.fs, sandboxID)
}

// Shims returns the shims of a sandbox and all that descend from them, by PID: the
// processes that work in the sandbox's bundle (containerd's <tasks>/<namespace>/<id>, CRI-O's
// <storage>/overlay-containers/<id>/userdata) or have its ID as an argument. The
// Node of each is empty.
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
	for pid := range all {
		of, err := isShimOf(fs, pid, sandboxID)
		if err != nil {
			return nil, fmt.Errorf("find shims of sandbox %s: process %d: %w", sandboxID, pid, err)
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

// isShimOf reports whether a process works in the sandbox's bundle or has its ID as an
// argument.
func isShimOf(fs *sysfs.FS, pid int, sandboxID string) (bool, error) {
	dir := "proc/" + strconv.Itoa(pid)
	cwd, err := fs.ReadLink(dir + "/cwd")
	if seen(err) != nil {
		return false, seen(err)
	}
	bundle := strings.TrimSuffix(cwd, " (deleted)")
	if err == nil && (path.Base(bundle) == sandboxID || path.Base(bundle) == "userdata" && path.Base(path.Dir(bundle)) == sandboxID) {
		return true, nil
	}
	args, err := argumentsOf(fs, pid)
	return names(args, sandboxID), err
}

// tree is the node's processes by PID.
type tree map[int]relatives

type relatives struct {
	parent, group int
	start         uint64
}

// describe returns those of the processes that belong to a family, by PID; none that have
// ended meanwhile.
func (all tree) describe(fs *sysfs.FS, belongs func(pid int) bool) ([]Holder, error) {
	var family []Holder
	for _, member := range slices.Sorted(maps.Keys(all)) {
		if !belongs(member) {
			continue
		}
		who, err := describe(fs, member)
		if seen(err) != nil {
			return nil, fmt.Errorf("process %d: %w", member, seen(err))
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
		r, err := relativesOf(fs, pid)
		if seen(err) != nil {
			return nil, fmt.Errorf("process %d: %w", pid, seen(err))
		}
		if err == nil {
			all[pid] = r
		}
	}
	return all, nil
}

func relativesOf(fs *sysfs.FS, pid int) (r relatives, err error) {
	stat, err := fs.ReadString("proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return r, err
	}
	if r.start, err = sysfs.ParseStartTime(stat); err != nil {
		return r, err
	}
	r.parent, r.group, err = sysfs.ParseParents(stat)
	return r, err
}

// descends reports whether a process is the ancestor itself or descends from it. The
// processes are not read at one moment, so that a chain may have a loop of reused PIDs.
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
