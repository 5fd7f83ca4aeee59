package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadFile returns the whole content of a file or attribute.
func (f *FS) ReadFile(path string) ([]byte, error) {
	data, err := f.readFile(path)
	err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func (f *FS) readFile(path string) ([]byte, error) {
	if o := f.overlaid(path); o != nil {
		return o.read()
	}
	if err := f.answer(OpRead, path); err != nil {
		return nil, err
	}
	fd, err := f.descriptor(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	if isAttribute(path) {
		return f.readAttribute(fd)
	}
	return f.content(fd, math.MaxInt64)
}

// content reads an open file from its present offset to its end, but at most n bytes. Nearly all files fit into a Dir's
// buffer. For a larger file, memory of the file's size is allocated once. Files in proc have no size, so the memory
// grows during the read.
func (f *FS) content(fd int, n int64) ([]byte, error) {
	buf := f.buffers.Get().(*buffer)
	defer f.buffers.Put(buf)
	in := io.LimitReader(descriptor(fd), n)
	switch read, err := io.ReadFull(in, buf[:]); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return append(make([]byte, 0, read), buf[:read]...), nil
	case err != nil:
		return bytes.Clone(buf[:read]), err
	}
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return nil, err
	}
	var all bytes.Buffer
	all.Grow(int(min(info.Size, n, maxGrow)) + bytes.MinRead)
	all.Write(buf[:])
	_, err := all.ReadFrom(in)
	return all.Bytes(), err
}

// maxGrow is the maximum memory in bytes that is allocated by a file's size.
const maxGrow = 16 << 20

// isAttribute reports whether a file is an attribute of a device, driver or module. Other files below sys may have
// several records, and one read returns only as many as fit (fs/seq_file.c seq_read_iter).
func isAttribute(path string) bool {
	for _, dir := range []string{"sys/bus/", "sys/class/", "sys/devices/", "sys/module/"} {
		if strings.HasPrefix(path, dir) {
			return true
		}
	}
	return false
}

// readAttribute reads an open attribute. If the first read returns less than a page, that is the whole attribute, and
// no second read looks for the end.
func (f *FS) readAttribute(fd int) ([]byte, error) {
	buf := f.buffers.Get().(*buffer)
	defer f.buffers.Put(buf)
	n, err := descriptor(fd).Read(buf[:])
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil || n < pageBytes {
		return bytes.Clone(buf[:n]), err
	}
	rest, err := f.content(fd, math.MaxInt64)
	return append(bytes.Clone(buf[:n]), rest...), err
}

// descriptor reads a file without an [os.File], which needs more system calls.
type descriptor int

func (d descriptor) Read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(d), p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

// ReadAtMost returns the first n bytes of a file, or the whole file if it is shorter. Use it for files that are not
// trusted. It reads only regular files and attributes: a read of a pipe or a device may never end.
func (f *FS) ReadAtMost(path string, n int64) ([]byte, error) {
	data, err := f.readAtMost(path, n)
	err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func (f *FS) readAtMost(path string, n int64) ([]byte, error) { return f.readPart(path, n, false) }

// ReadTail returns the last n bytes of a file, such as a log. Otherwise it is like [FS.ReadAtMost].
func (f *FS) ReadTail(path string, n int64) ([]byte, error) {
	data, err := f.readPart(path, n, true)
	err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err)
	if err != nil {
		return nil, fmt.Errorf("read the end of %s: %w", path, err)
	}
	return data, nil
}

func (f *FS) readPart(path string, n int64, tail bool) ([]byte, error) {
	if o := f.overlaid(path); o != nil {
		data, err := o.read()
		if tail {
			return data[max(int64(len(data))-n, 0):], err
		}
		return data[:min(int64(len(data)), n)], err
	}
	if err := f.answer(OpRead, path); err != nil {
		return nil, err
	}
	// The open of a FIFO without a writer would block (fifo(7)).
	fd, err := f.descriptor(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return nil, err
	}
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, unix.EISDIR
	default:
		return nil, errNotRegular
	}
	if tail {
		if _, err := unix.Seek(fd, max(info.Size-n, 0), io.SeekStart); err != nil {
			return nil, err
		}
	}
	return f.content(fd, n)
}

// errNotRegular refuses to read pipes, sockets and devices.
var errNotRegular = errors.New("it is not a regular file")

// ReadString returns the content of an attribute without the space around it.
func (f *FS) ReadString(path string) (string, error) {
	data, err := f.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}
