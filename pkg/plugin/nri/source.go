package nri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// initRoot is the root of the node's first process. It is the node's own root for a process in the node's PID namespace
// that may trace the first process (CAP_SYS_PTRACE).
const initRoot = "/proc/1/root"

// ErrBusy is the error if too many look-ups wait for file systems that do not answer.
var ErrBusy = errors.New("too many earlier look-ups still wait for a file system that does not answer")

// DeviceNode is the device of a device node.
type DeviceNode struct {
	Block        bool // or a character device
	Major, Minor uint32
}

// String returns the kind and the number: "block device 8:0".
func (d DeviceNode) String() string {
	kind := "character"
	if d.Block {
		kind = "block"
	}
	return fmt.Sprintf("%s device %d:%d", kind, d.Major, d.Minor)
}

// SourceFinder finds out what kind of files paths of the node lead to, from a container that has another root. It never opens a file
// itself. A file system that does not answer delays it only for a limited time. It is safe for concurrent use.
type SourceFinder struct {
	root    string
	limit   time.Duration
	look    func(root int, path string) (d DeviceNode, is bool, err error)
	waiting *slots
}

// NewSourceFinder returns a finder for the node with the root, which is below [initRoot] on a live node. A look-up waits for the kernel for
// limit at most.
func NewSourceFinder(root string, limit time.Duration) *SourceFinder {
	return &SourceFinder{root: root, limit: limit, look: nodeAt, waiting: &slots{used: map[string]int{}}}
}

// Devices returns the device nodes among the files that the paths lead to, by path. Paths are those of the node, and begin
// with a slash; links are followed below the node's root, as a bind mount does. The limit is for all paths together.
//
// An error is always a *[fs.PathError] with the path that the kernel did not answer for: it wraps [fs.ErrNotExist] for no
// such file, [os.ErrDeadlineExceeded] after the limit, and [ErrBusy] while other look-ups for the same tenant hang. The
// kernel can't take back a call that hangs, so each keeps a thread until the file system answers.
func (f *SourceFinder) Devices(tenant string, paths []string) (map[string]DeviceNode, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	if !f.waiting.take(tenant) {
		return nil, &fs.PathError{Op: "look at", Path: paths[0], Err: ErrBusy}
	}
	type answer struct {
		devices map[string]DeviceNode
		err     error
	}
	var at atomic.Int64
	// The channel has room for an answer that arrives after the limit.
	answers := make(chan answer, 1)
	go func() {
		devices, err := f.devices(paths, &at)
		f.waiting.give(tenant)
		answers <- answer{devices, err}
	}()
	timer := time.NewTimer(f.limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.devices, a.err
	case <-timer.C:
		return nil, &fs.PathError{Op: "look at", Path: paths[at.Load()], Err: os.ErrDeadlineExceeded}
	}
}

// devices looks at the paths in order; at is the index of the path in progress.
func (f *SourceFinder) devices(paths []string, at *atomic.Int64) (map[string]DeviceNode, error) {
	root, err := unix.Open(f.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "look at", Path: paths[0], Err: fmt.Errorf("open the node's root %s: %w", f.root, err)}
	}
	defer func() { _ = unix.Close(root) }() // nothing was written to it
	found := map[string]DeviceNode{}
	for i, path := range paths {
		at.Store(int64(i))
		device, is, err := f.look(root, path)
		if err != nil {
			return nil, &fs.PathError{Op: "look at", Path: path, Err: err}
		}
		if is {
			found[path] = device
		}
	}
	return found, nil
}

// maxAttempts bounds the attempts for a path while others move directories.
const maxAttempts = 32

// nodeAt returns the device node that a path leads to; is is false for any other file.
func nodeAt(root int, path string) (d DeviceNode, is bool, err error) {
	fd, err := openPath(root, path)
	if err != nil {
		return DeviceNode{}, false, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	// The kind of a file never changes, so a network file system need not ask its server.
	var s unix.Statx_t
	err = retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &s)
	})
	if err == nil && s.Mask&unix.STATX_TYPE == 0 {
		err = errors.New("the file system does not say what kind of file it is")
	}
	if err != nil {
		return DeviceNode{}, false, err
	}
	kind := s.Mode & unix.S_IFMT
	d = DeviceNode{Block: kind == unix.S_IFBLK, Major: s.Rdev_major, Minor: s.Rdev_minor}
	return d, d.Block || kind == unix.S_IFCHR, nil
}

// openPath opens a path without the file's own open: no driver is asked.
func openPath(root int, path string) (fd int, err error) {
	relative := strings.TrimLeft(path, "/")
	if relative == "" {
		relative = "."
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	err = retry(func() (err error) {
		fd, err = unix.Openat2(root, relative, &how)
		return err
	})
	return fd, err
}

// retry repeats a system call that a signal interrupted, or that the kernel could not keep below the root because
// somebody moved a directory meanwhile (EAGAIN, openat2(2)).
func retry(call func() error) (err error) {
	for range maxAttempts {
		if err = call(); !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return err
}
