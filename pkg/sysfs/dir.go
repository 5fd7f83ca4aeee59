package sysfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is an open directory whose attributes are read one after the other, each
// by an openat, a read and a close: no path is walked again and nothing is
// allocated but what is returned. A scan of thousands of functions lives on
// that. It is not safe for concurrent use.
//
// Names are single path elements and links are not followed, so nothing that
// is read through a Dir lies outside of it. An absent attribute is false, not
// an error. Mind that the kernel answers "absent" for every attribute of a
// device that was removed after the Dir was opened.
type Dir struct {
	file *os.File
	path string
	fs   *FS
	buf  *buffer
}

// buffer holds the longest attribute: sysfs limits one to a page,
// configuration space to 4096 bytes, and proc's fdinfo stays below both. Twice
// that, so that a full buffer means "too long" and not "maybe all".
type buffer [8192]byte

// OpenDir opens a directory of the node; Close it.
func (f *FS) OpenDir(path string) (*Dir, error) {
	file, err := f.root.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, reason(err))
	}
	return f.newDir(file, path), nil
}

func (f *FS) newDir(file *os.File, path string) *Dir {
	return &Dir{file: file, path: path, fs: f, buf: f.buffers.Get().(*buffer)}
}

// newBuffers returns the pool that Dirs take their buffers from.
func newBuffers() *sync.Pool { return &sync.Pool{New: func() any { return new(buffer) }} }

// Close closes the directory, once. The Dirs that were opened from it stay
// open.
func (d *Dir) Close() {
	d.fs.buffers.Put(d.buf)
	d.buf = nil
	_ = d.file.Close() // nothing was written to it
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
	read, err := retry(func() (int, error) { return unix.Read(fd, d.buf[:]) })
	if err != nil {
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
	return strings.TrimSpace(string(data)), ok, err
}

// Link returns the target of a link as it is written; false where there is no
// such name or it is no link.
func (d *Dir) Link(name string) (target string, ok bool, err error) {
	n, err := retry(func() (int, error) { return unix.Readlinkat(d.Fd(), name, d.buf[:]) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return "", false, nil
	}
	if err != nil {
		return "", false, d.wrap("read link", name, err)
	}
	return string(d.buf[:n]), true, nil
}

// Sub opens a directory in d.
func (d *Dir) Sub(name string) (sub *Dir, ok bool, err error) {
	fd, ok, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !ok || err != nil {
		return nil, false, err
	}
	path := d.path + "/" + name
	return d.fs.newDir(os.NewFile(uintptr(fd), path), path), true, nil
}

// Names lists the directory, sorted as strings.
func (d *Dir) Names() ([]string, error) {
	_, err := d.file.Seek(0, io.SeekStart)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path, reason(err))
	}
	names, err := d.file.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.path, reason(err))
	}
	slices.Sort(names)
	return names, nil
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
	fd, err = retry(func() (int, error) {
		return unix.Openat(d.Fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) {
		return -1, false, nil
	}
	if err != nil {
		return -1, false, d.wrap("open", name, err)
	}
	return fd, true, nil
}

// Fd returns the directory's descriptor, for system calls that a Dir does not
// have. It is good until Close.
func (d *Dir) Fd() int { return int(d.file.Fd()) }

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
