package sysfs

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ErrLocked says that an attribute can't be read now because the kernel holds
// the function's device lock: an unbind, probe or reset of it is under way and
// takes long or hangs.
var ErrLocked = errors.New("an operation on the function hangs in the kernel and holds its device lock")

// lockWait is how long a read waits for a device lock. A probe may hold it for
// seconds; an unbind that waits for a process to close the function holds it
// for as long as the process likes.
const lockWait = 2 * time.Second

// lockedReads keeps count of reads that hang. Such a read can't be called off:
// it takes a thread with it until the kernel lets go. So a function gets no
// second one.
type lockedReads struct {
	wait time.Duration

	mu      sync.Mutex // guards hanging
	hanging map[pci.Address]int
}

func newLockedReads() *lockedReads {
	return &lockedReads{wait: lockWait, hanging: map[pci.Address]int{}}
}

// add counts n more hanging reads of a.
func (l *lockedReads) add(a pci.Address, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hanging[a] += n; l.hanging[a] == 0 {
		delete(l.hanging, a)
	}
}

func (l *lockedReads) hangs(a pci.Address) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hanging[a] > 0
}

// LockedText reads an attribute of the function at a, whose directory d is,
// that kernels show under the device lock: driver_override, until it became an
// attribute of all devices (drivers/pci/pci-sysfs.c driver_override_show), and
// sriov_numvfs, in v5.5 to v6.8 (drivers/pci/iov.c sriov_numvfs_show). It is
// false when absent, and [ErrLocked] when the lock is not to be had.
func (d *Dir) LockedText(a pci.Address, name string) (text string, ok bool, err error) {
	if d.fs.locked.hangs(a) {
		return "", false, d.wrap("read", name, ErrLocked)
	}
	fd, ok, err := d.open(name, unix.O_RDONLY)
	if !ok || err != nil {
		return "", false, err
	}
	text, err = d.fs.locked.read(a, fd)
	if err != nil {
		return "", false, d.wrap("read", name, err)
	}
	return strings.TrimSpace(text), true, nil
}

// read reads and closes an open attribute of a, but waits for it no longer
// than l.wait.
func (l *lockedReads) read(a pci.Address, fd int) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := readAll(fd)
		_ = unix.Close(fd)
		done <- result{text, err}
	}()
	limit := time.NewTimer(l.wait)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.text, r.err
	case <-limit.C:
	}
	l.add(a, 1)
	go func() {
		<-done
		l.add(a, -1)
	}()
	return "", ErrLocked
}

// readAll reads an attribute into a buffer of its own, which a reader that is
// not waited for may keep.
func readAll(fd int) (string, error) {
	var buf [4096]byte
	n, err := retry(func() (int, error) { return unix.Read(fd, buf[:]) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// lockedText reads such an attribute of the function at a, empty when absent.
func (f *FS) lockedText(a pci.Address, name string) (string, error) {
	dir, err := f.OpenDir(FunctionPath(a))
	if err != nil {
		return "", f.absent(a, err)
	}
	defer dir.Close()
	text, ok, err := dir.LockedText(a, name)
	if err != nil {
		return "", f.absent(a, err)
	}
	if !ok {
		return "", f.absent(a, fmt.Errorf("read %s: %w", name, unix.ENOENT))
	}
	return text, nil
}
