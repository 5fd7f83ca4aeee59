// Package vfio sees VFIO as its users do: it finds the device nodes that lead to a function and the processes that have
// them open, and resets several functions together.
//
// Layouts and numbers are those of Linux's include/uapi/linux/vfio.h.
package vfio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// ErrCannotSee says that not all processes of the node are visible, so the holders of a device are unknown. The
// privilege is missing, or /proc shows only one container. It never means that there is no holder.
var ErrCannotSee = errors.New("can't see all processes of the node (needs root, CAP_SYS_PTRACE and, in a pod, hostPID)")

// Holder is a process that has a device node open.
type Holder struct {
	PID int `json:"pid"`
	// Comm is the kernel's short name of the process.
	Comm string `json:"comm"`
	// Node is the node that the process has open, as the caller named it: "/dev/vfio/15". It is empty for a process
	// that may open the device but has not opened it yet ([Family]).
	Node string `json:"node"`
	// Container is the id of the process' container, empty outside of any.
	Container string `json:"container,omitempty"`
	// StartTime is in clock ticks since boot. PID and StartTime together identify the process; the PID alone may be
	// reused.
	StartTime uint64 `json:"startTime"`
}

// String returns the holder as a phrase: "qemu-system-x86 (pid 4711, container
// 3f2c..., opened /dev/vfio/15)".
func (h Holder) String() string {
	container := ""
	if h.Container != "" {
		container = ", container " + h.Container
	}
	what := "opened " + h.Node
	if h.Node == "" {
		what = "starts a sandbox with it"
	}
	return fmt.Sprintf("%s (pid %d%s, %s)", h.Comm, h.PID, container, what)
}

// Holders returns the processes, in containers too, that have any of the nodes open, by PID and node. Nodes are named
// by their paths on the node: "/dev/vfio/15", "/dev/dri/card0". A node that does not exist has no holders, unless it
// was removed while it was open.
//
// Holders reads /proc/*/fd, and /proc/*/task/*/fd of threads that don't share the table of the first thread. On a live
// node, a file is identified by its device number, because a container may have the node under any name. A VFIO device
// that was passed on without its node is found if the kernel names it in fdinfo. A process that ends meanwhile is
// skipped.
//
// If a process can't be inspected, the error is an [UninspectableError]. It matches [ErrCannotSee] if the privilege is
// missing. The holders among all other processes are returned with it.
func Holders(ctx context.Context, fs *sysfs.FS, nodes []string) ([]Holder, error) {
	s, err := newSearch(fs, nodes)
	if err != nil {
		return nil, fmt.Errorf("find holders: %w", err)
	}
	holders, err := s.all(ctx)
	slices.SortFunc(holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Node, b.Node))
	})
	if err != nil {
		err = fmt.Errorf("find holders: %w", err)
	}
	return holders, err
}

// UninspectableError says that it is unknown what a process has open.
type UninspectableError struct {
	PID int
	// Comm and Container are empty if they are not known either.
	Comm, Container string
	Err             error
}

func (e *UninspectableError) Error() string {
	who := e.Comm
	if e.Container != "" {
		who = strings.TrimPrefix(who+", container "+e.Container, ", ")
	}
	if who != "" {
		who = " (" + who + ")"
	}
	return fmt.Sprintf("process %d%s can't be inspected: %s", e.PID, who, e.Err)
}

func (e *UninspectableError) Unwrap() error { return e.Err }

// uninspectable returns the error for a process that could not be inspected.
func uninspectable(fs *sysfs.FS, pid int, err error) *UninspectableError {
	e := &UninspectableError{PID: pid, Err: err}
	dir := sysfs.Process(pid)
	if comm, err := fs.ReadString(dir + "/comm"); err == nil {
		e.Comm = comm
	}
	if cgroup, err := fs.ReadString(dir + "/cgroup"); err == nil {
		e.Container = parseContainer(cgroup)
	}
	return e
}

// processes returns the PIDs that proc lists.
func processes(fs *sysfs.FS) ([]int, error) {
	names, err := fs.ReadDir(sysfs.Proc)
	if err != nil {
		return nil, err
	}
	return numbers(names), nil
}

// numbers returns the names that are numbers.
func numbers(names []string) []int {
	all := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// lookers is how many goroutines inspect processes at most. To inspect one process takes about ten system calls, and
// the node has other work to do.
const lookers = 4

// all inspects all processes, some at a time. If one can't be inspected, the others still are.
func (s *search) all(ctx context.Context) ([]Holder, error) {
	var mu sync.Mutex // guards holders and failed
	var holders []Holder
	var failed *UninspectableError
	var next atomic.Int64
	look := func(pid int) {
		found, err := s.process(ctx, pid)
		mu.Lock()
		defer mu.Unlock()
		holders = append(holders, found...)
		if err != nil && (failed == nil || pid < failed.PID) {
			failed = uninspectable(s.fs, pid, err)
		}
	}
	var g sync.WaitGroup
	for range min(lookers, runtime.GOMAXPROCS(0)) {
		g.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(s.pids)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				look(s.pids[i])
			}
		})
	}
	g.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if failed != nil {
		return holders, failed
	}
	return holders, nil
}

// Claimed returns the node of a disk of f that is opened exclusively: by a mount in any namespace, swap, RAID,
// device-mapper, ZFS, or a process. It is empty if there is none. Claimed asks the kernel (open(2) with O_EXCL on a
// block device), which also knows users that are missing in [device.Function.Uses], which is read from proc.
//
// To ask, Claimed claims each disk for a moment. A mount fails in that moment, so ask only about a function that is
// about to be taken.
func Claimed(ctx context.Context, fs *sysfs.FS, f *device.Function) (node string, err error) {
	for _, disk := range f.Children.Block {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		node := diskNode(disk)
		claimed, err := isClaimed(filepath.Join(fs.Path(), node))
		if errors.Is(err, errNoDisk) {
			err = noNode(fs, disk)
		}
		if err != nil {
			return "", fmt.Errorf("find the processes that have %s open: %w", node, err)
		}
		if claimed {
			return node, nil
		}
	}
	return "", nil
}

// diskNode returns a disk's node: sysfs writes "!" where the node's name has "/", as in cciss!c0d0 (Linux
// drivers/base/core.c, device_get_devnode).
func diskNode(disk string) string { return "/dev/" + strings.ReplaceAll(disk, "!", "/") }

// errNoDisk says that the node does not lead to a disk.
var errNoDisk = errors.New("no disk is behind the node")

// isClaimed reports whether a block device can't be opened exclusively. That is also so for a disk while one of its
// partitions is claimed.
func isClaimed(node string) (bool, error) {
	// Without O_CREAT, O_EXCL on a block device means: fail with EBUSY if the kernel or a process has claimed it (open(2)).
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EBUSY):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return false, fmt.Errorf("%w: %w", errNoDisk, err)
	}
	return false, err
}

// noNode returns nil for a disk that nothing can open: it is gone, or it is a path to a multipath disk and has no node
// (GENHD_FL_HIDDEN of Linux block/genhd.c). It returns an error for any other disk without a node, because the users of
// such a disk are not known.
func noNode(fs *sysfs.FS, disk string) error {
	dir := "sys/class/block/" + disk
	there, err := fs.Exists(dir)
	if err != nil || !there {
		return err
	}
	hidden, err := fs.ReadString(dir + "/hidden")
	switch {
	case err == nil && hidden == "1":
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	return fmt.Errorf("%s does not lead to a disk, although /%s exists, so nothing shows whether the disk is in use: let udev create the node (udevadm trigger)", diskNode(disk), dir)
}

// isPathOnly reports whether an open file of a process only names a place in the file system (O_PATH of open(2)). The
// device's driver does not know of such a file, so it does not hold the device. [sysfs.FS.Stat] has such a file for a
// moment, and must not be taken for a holder. If fdinfo (proc_pid_fdinfo(5)) does not say it, isPathOnly returns false,
// and the file counts as a holder's.
func (o *openFile) isPathOnly() bool {
	text, ok, err := o.info()
	if !ok || err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		octal, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
		return err == nil && flags&unix.O_PATH != 0
	}
	return false
}
