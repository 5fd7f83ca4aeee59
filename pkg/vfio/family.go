package vfio

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

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
	var family []Holder
	for _, member := range slices.Sorted(maps.Keys(all)) {
		if !all.descends(member, pid) && (runs || all[member].group != pid) {
			continue
		}
		who, err := describe(fs, member)
		if seen(err) != nil {
			return nil, fmt.Errorf("find descendants of process %d: process %d: %w", pid, member, seen(err))
		}
		if err == nil && who.StartTime == all[member].start {
			family = append(family, who)
		}
	}
	return family, nil
}

// tree is the node's processes by PID.
type tree map[int]relatives

type relatives struct {
	parent, group int
	start         uint64
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
