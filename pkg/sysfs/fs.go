package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// FS is a node's file system below one root. It is safe for concurrent use.
// Paths are relative to the root and have no leading slash:
// "sys/bus/pci/devices".
type FS struct {
	root    *os.Root
	path    string
	buffers *sync.Pool // of *buffer, for the Dirs
	locked  *lockedReads
}

// Open returns the file system below root, which holds sys, proc, dev and lib
// as a node does; any of them may be absent from a captured tree.
func Open(root string) (*FS, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open node root %s: %w", root, err)
	}
	return &FS{root: r, path: root, buffers: newBuffers(), locked: newLockedReads()}, nil
}

// Close releases the root. Reads after it fail with [fs.ErrClosed].
func (f *FS) Close() error { return f.root.Close() }

// Path returns the root as it was given to [Open].
func (f *FS) Path() string { return f.path }

// ReadFile returns the whole content of a file or attribute.
func (f *FS) ReadFile(path string) ([]byte, error) {
	data, err := f.root.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, reason(err))
	}
	return data, nil
}

// ReadAtMost returns the first n bytes of a file, or all of one that is shorter.
// It is for files of a node that nobody vouches for. What is no regular file or
// attribute (a pipe, a device) is refused, since reading it may never end.
func (f *FS) ReadAtMost(path string, n int64) ([]byte, error) {
	file, err := f.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, reason(err))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = unix.EISDIR
		if !info.IsDir() {
			err = errNotRegular
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, reason(err))
	}
	data, err := io.ReadAll(io.LimitReader(file, n))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, reason(err))
	}
	return data, nil
}

// errNotRegular refuses to read pipes, sockets and devices.
var errNotRegular = errors.New("it is no regular file")

// ReadString returns the content of an attribute without the space around it.
func (f *FS) ReadString(path string) (string, error) {
	data, err := f.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// ReadLink returns a link's target as it is written, without following it.
func (f *FS) ReadLink(path string) (string, error) {
	target, err := f.root.Readlink(path)
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, reason(err))
	}
	return target, nil
}

// ReadDir returns the names in a directory, sorted as strings.
func (f *FS) ReadDir(path string) ([]string, error) {
	dir, err := f.root.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, reason(err))
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, reason(err))
	}
	slices.Sort(names)
	return names, nil
}

// Exists reports whether path is there once links are followed.
func (f *FS) Exists(path string) (bool, error) {
	_, err := f.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Stat describes the file that path leads to once links are followed.
func (f *FS) Stat(path string) (fs.FileInfo, error) {
	info, err := f.root.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, reason(err))
	}
	return info, nil
}

// reason strips os' own operation and path from err: the caller says both,
// with the whole path below the root where os says the last element it tried.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
