package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is an open directory whose attributes are read one after the other. Each attribute takes an openat, a read and a
// close: no path is walked again, and only the result is allocated. This makes scans of thousands of functions fast. A
// Dir is not safe for concurrent use.
//
// Names are single path elements, and links are not followed, so a Dir reads nothing outside of its directory. For an
// absent attribute, methods return false and no error. If a device is removed after its Dir was opened, the kernel
// reports all its attributes as absent.
type Dir struct {
	fd   int
	path string
	fs   *FS
	buf  *buffer
	// read says that the directory was listed before, so that the next listing must rewind it.
	read bool
}

// buffer holds the longest attribute: sysfs limits an attribute to a page, configuration space has at most 4096 bytes,
// and proc's fdinfo is smaller. The buffer has twice that size, so that a full buffer shows that the attribute is too
// long.
type buffer [8192]byte

// OpenDir opens a directory of the node; Close it.
func (f *FS) OpenDir(path string) (*Dir, error) {
	fd, err := f.openDir(path)
	if err = f.observed(Access{Op: OpOpen, Path: path}, err); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f.newDir(fd, path), nil
}

func (f *FS) openDir(path string) (fd int, err error) {
	if err := f.answer(OpOpen, path); err != nil {
		return -1, err
	}
	return f.descriptor(path, unix.O_RDONLY|unix.O_DIRECTORY)
}

func (f *FS) newDir(fd int, path string) *Dir {
	return &Dir{fd: fd, path: path, fs: f, buf: f.buffers.Get().(*buffer)}
}

// newBuffers returns the pool that Dirs take their buffers from.
func newBuffers() *sync.Pool { return &sync.Pool{New: func() any { return new(buffer) }} }

// Close closes the directory, once. The Dirs that were opened from it stay
// open.
func (d *Dir) Close() {
	d.fs.buffers.Put(d.buf)
	d.buf = nil
	_ = unix.Close(d.fd) // nothing was written to it
}

// Path returns the directory's path below the root.
func (d *Dir) Path() string { return d.path }

// Bytes returns the content of an attribute. It is valid until the next read
// from d.
func (d *Dir) Bytes(name string) (data []byte, ok bool, err error) {
	fd, ok, err := d.open(name, unix.O_RDONLY)
	if !ok || err != nil {
		return nil, false, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written to it
	read, err := 0, d.answer(OpRead, name)
	if err == nil {
		read, err = retry(func() (int, error) { return unix.Read(fd, d.buf[:]) })
	}
	if err = d.observed(Access{Op: OpRead, Path: name, Data: d.buf[:max(read, 0)]}, err); err != nil {
		return nil, false, d.wrap("read", name, err)
	}
	if read == len(d.buf) {
		return nil, false, d.wrap("read", name, unix.EFBIG)
	}
	return d.buf[:read], true, nil
}

// Text returns the content of an attribute without the space around it.
func (d *Dir) Text(name string) (text string, ok bool, err error) {
	data, ok, err := d.Bytes(name)
	return string(bytes.TrimSpace(data)), ok, err
}

// Link returns the target of a link as it is written; false if the name does not exist or is not a link.
func (d *Dir) Link(name string) (target string, ok bool, err error) {
	target, _, err = d.Entry(name)
	return target, target != "", err
}

// Entry is like [Dir.Link], but distinguishes an absent name from one that is not a link: the latter exists and has no
// target.
func (d *Dir) Entry(name string) (target string, exists bool, err error) {
	n, err := 0, d.answer(OpLink, name)
	if err == nil {
		n, err = retry(func() (int, error) { return unix.Readlinkat(d.fd, name, d.buf[:]) })
	}
	err = d.observed(Access{Op: OpLink, Path: name, Data: d.buf[:max(n, 0)]}, err)
	switch {
	case err == nil:
		return string(d.buf[:n]), true, nil
	case errors.Is(err, unix.ENOENT):
		return "", false, nil
	case errors.Is(err, unix.EINVAL):
		// readlink(2) of anything but a link.
		return "", true, nil
	}
	return "", false, d.wrap("read link", name, err)
}

// Sub opens a directory in d.
func (d *Dir) Sub(name string) (sub *Dir, ok bool, err error) {
	fd, ok, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !ok || err != nil {
		return nil, false, err
	}
	return d.fs.newDir(fd, d.path+"/"+name), true, nil
}

// Names lists the directory, sorted as strings.
func (d *Dir) Names() ([]string, error) {
	names, err := d.names()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path, err)
	}
	return names, nil
}

// names lists the directory. For a copy of a node, it returns the names that the node had.
func (d *Dir) names() ([]string, error) {
	if d.fs.copy != nil {
		return d.fs.copy.Names(d.path)
	}
	names, err := d.entries()
	slices.Sort(names)
	return names, d.fs.observed(Access{Op: OpList, Path: d.path, Names: names}, err)
}

// entries returns the names in the directory in the kernel's order.
func (d *Dir) entries() (names []string, err error) {
	err = d.eachRead(func(entries []byte) bool {
		_, _, names = unix.ParseDirent(entries, -1, names)
		return true
	})
	return names, err
}

// eachRead lists the directory with as many reads as needed. It stops if do returns false.
func (d *Dir) eachRead(do func(entries []byte) bool) error {
	if d.read {
		if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
			return err
		}
	}
	d.read = true
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(d.fd, d.buf[:]) })
		if n <= 0 || err != nil {
			return err
		}
		if !do(d.buf[:n]) {
			return nil
		}
	}
}

// Each lists the directory in the kernel's order, some names at a time. It is for directories that may be huge: a
// process may have millions of open files. It stops at the first error of do, and returns it.
func (d *Dir) Each(do func(names []string) error) error {
	if d.fs.copy != nil || d.fs.tap != nil { // a copy has the whole list
		names, err := d.Names()
		if err != nil {
			return err
		}
		return do(names)
	}
	var failed error
	err := d.eachRead(func(entries []byte) bool {
		_, _, names := unix.ParseDirent(entries, -1, nil)
		failed = do(names)
		return failed == nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", d.path, err)
	}
	return failed
}

// List lists a directory in d.
func (d *Dir) List(name string) (names []string, ok bool, err error) {
	sub, ok, err := d.Sub(name)
	if !ok || err != nil {
		return nil, false, err
	}
	defer sub.Close()
	names, err = sub.Names()
	return names, err == nil, err
}

// open opens one element of d; links are refused with ELOOP.
func (d *Dir) open(name string, flags int) (fd int, ok bool, err error) {
	if name == "" || strings.ContainsRune(name, '/') || name == ".." {
		return -1, false, d.wrap("open", name, unix.EINVAL)
	}
	if err = d.answer(OpOpen, name); err == nil {
		fd, err = retry(func() (int, error) {
			return unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
	}
	err = d.observed(Access{Op: OpOpen, Path: name}, err)
	if errors.Is(err, unix.ENOENT) {
		return -1, false, nil
	}
	if err != nil {
		return -1, false, d.wrap("open", name, err)
	}
	return fd, true, nil
}

// Inode returns the directory's inode number. A function's directory in sysfs gets a number that no other directory had
// since the boot (fs/kernfs/dir.c __kernfs_new_node), so the number distinguishes a function from one that comes to its
// address later. It is 0 if it is unknown: the files of a [Copy] have the numbers of another file system, unless the
// copy is one of [NodeInodes].
func (d *Dir) Inode() (uint64, error) {
	if !d.fs.hasInodes() {
		return 0, nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(d.fd, &stat); err != nil {
		return 0, fmt.Errorf("stat %s: %w", d.path, err)
	}
	return stat.Ino, nil
}

// Fd returns the directory's descriptor, for system calls for which a Dir has no method. It is valid until Close.
func (d *Dir) Fd() int { return d.fd }

func (d *Dir) wrap(what, name string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", what, d.path, name, err)
}

// retry repeats a system call that a signal interrupted: the Go runtime
// preempts goroutines by signals, and not every file system restarts the call.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
