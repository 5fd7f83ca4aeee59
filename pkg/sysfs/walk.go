package sysfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// walk opens what path leads to, links followed, below the root. The kernel walks
// in one call, where [os.Root] takes two for each element of the path. What it
// does not do (an older kernel, a link that the root does not allow) is not known,
// and os.Root does it, or says why not.
func (f *FS) walk(path string, flags int) (fd int, known bool, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH}
	fd, err = retry(func() (int, error) { return unix.Openat2(int(f.top.Fd()), path, &how) })
	return fd, err == nil || errors.Is(err, unix.ENOENT), err
}

// file opens what path leads to; close it.
func (f *FS) file(path string, flags int) (*os.File, error) {
	fd, known, err := f.walk(path, flags)
	if !known {
		return f.root.OpenFile(path, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// descriptor is [FS.file] for who needs no [os.File], which takes calls of its own
// to make and to close.
func (f *FS) descriptor(path string, flags int) (int, error) {
	fd, known, err := f.walk(path, flags)
	if known {
		return fd, err
	}
	file, err := f.root.OpenFile(path, flags, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = file.Close() }() // nothing was written to it
	return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}
