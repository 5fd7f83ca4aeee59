// Package sysfs reads a node's /sys, /proc, /dev and /lib below one root directory: "/" on a live node, "/host" in a
// container, or a captured tree. It never writes; package sysfs/control does.
//
// All accesses stay below that root, by openat2(2) or an [os.Root]. Relative links are followed as the kernel wrote
// them. A link or ".." that leaves the root is an error, so a captured tree can't point at the node that reads it.
//
// Errors wrap the file system's own and name the path below the root. errors.Is with [fs.ErrNotExist] distinguishes an
// absent attribute from an unreadable one.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// FS is a node's file system below one root. It is safe for concurrent use.
// Paths are relative to the root and have no leading slash:
// "sys/bus/pci/devices".
type FS struct {
	root    *os.Root
	top     *os.File // the root directory itself
	path    string
	buffers *sync.Pool // of *buffer, for the Dirs
	locked  *lockedReads
	delayed *delayedReads
	tap     func(Access) // nil if there is none
	copy    Copy         // nil for a node
	over    *Overlay     // nil if there is none
}

// Open returns the file system below root, which holds sys, proc, dev and lib
// as a node does; any of them may be absent from a captured tree.
func Open(root string) (*FS, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open node root %s: %w", root, err)
	}
	top, err := r.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open node root %s: %w", root, errors.Join(err, r.Close()))
	}
	return &FS{root: r, top: top, path: root, buffers: newBuffers(), locked: newLockedReads(), delayed: newDelayedReads()}, nil
}

// Close closes the root. Later reads fail with [fs.ErrClosed].
func (f *FS) Close() error { return errors.Join(f.root.Close(), f.top.Close()) }

// Path returns the root as it was given to [Open].
func (f *FS) Path() string { return f.path }

// ReadLink returns a link's target as it is written, without following it.
func (f *FS) ReadLink(path string) (string, error) {
	target, err := f.readLink(path)
	err = f.observed(Access{Op: OpLink, Path: path, Data: []byte(target)}, err)
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	return target, nil
}

func (f *FS) readLink(path string) (string, error) {
	if o := f.overlaid(path); o != nil {
		return o.readLink()
	}
	if err := f.answer(OpLink, path); err != nil {
		return "", err
	}
	dir, name := filepath.Split(path)
	if dir == "" || name == "" || name == ".." {
		return f.root.Readlink(path)
	}
	fd, known, err := f.walk(dir, unix.O_PATH|unix.O_DIRECTORY)
	if !known {
		return f.root.Readlink(path)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var buf [4096]byte
	n, err := retry(func() (int, error) { return unix.Readlinkat(fd, name, buf[:]) })
	if errors.Is(err, unix.ENOENT) && f.tap == nil { // a copy needs each look
		err = errNoEntry
	}
	return string(buf[:max(n, 0)]), err
}

// errNoEntry is ENOENT of a name in a directory that exists.
var errNoEntry = fmt.Errorf("%w", unix.ENOENT)

// ReadDir returns the names in a directory, sorted as strings.
func (f *FS) ReadDir(path string) ([]string, error) {
	names, err := f.readDir(path)
	names, err = f.joinedNames(path, names, err)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	return names, nil
}

func (f *FS) readDir(path string) ([]string, error) {
	if f.copy != nil {
		return f.copy.Names(path)
	}
	fd, err := f.descriptor(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, f.observed(Access{Op: OpList, Path: path}, err)
	}
	dir := f.newDir(fd, path)
	defer dir.Close()
	return dir.names()
}

// Exists reports whether path is there once links are followed.
func (f *FS) Exists(path string) (bool, error) {
	if f.tap == nil && f.copy == nil && f.over == nil { // a copy needs the description, too
		switch fd, known, err := f.walk(path, unix.O_PATH); {
		case known && err == nil:
			return true, unix.Close(fd)
		case known:
			return false, nil
		}
	}
	_, err := f.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Stat describes the file that path leads to once links are followed.
func (f *FS) Stat(path string) (fs.FileInfo, error) {
	info, err := f.stat(path)
	info, err = f.madeDir(path, info, err)
	err = f.observed(Access{Op: OpStat, Path: path, Info: info}, err)
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	return info, nil
}

func (f *FS) stat(path string) (fs.FileInfo, error) {
	if o := f.overlaid(path); o != nil {
		return o.stat()
	}
	if err := f.answer(OpStat, path); err != nil {
		return nil, err
	}
	fd, known, err := f.walk(path, unix.O_PATH)
	if !known {
		return f.root.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	info := &statInfo{name: filepath.Base(path)}
	if err := syscall.Fstat(fd, &info.stat); err != nil {
		return nil, err
	}
	return info, nil
}

// Lstat describes the file at the path itself, a link included. It is not reported to a tap.
func (f *FS) Lstat(path string) (fs.FileInfo, error) {
	if o := f.overlaid(path); o != nil {
		return o.stat()
	}
	info, err := f.root.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, reason(err))
	}
	return info, nil
}

// reason removes os' own operation and path from err. The caller adds both, with the whole path below the root: os names
// only the last element that it tried.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// walk opens the target of path below the root, and follows links. The kernel needs one call for that, [os.Root] two
// for each element of the path. If known is false, the kernel can't do it, because it is too old or a link leads where
// the root does not allow. Then the caller uses os.Root, which does it or returns the reason why not.
func (f *FS) walk(path string, flags int) (fd int, known bool, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH}
	fd, err = retry(func() (int, error) { return unix.Openat2(int(f.top.Fd()), path, &how) })
	return fd, err == nil || errors.Is(err, unix.ENOENT), err
}

// file opens the target of path. The caller closes it.
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

// descriptor is [FS.file] for system calls.
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

// Op is a kind of access to a file.
type Op int

// Kinds of accesses. OpOpen opens a directory, or a file to read.
const (
	OpOpen Op = iota
	OpRead
	OpList
	OpLink
	OpStat
)

// Access is one read and its result. A tap that gets all accesses can make a copy of the node.
type Access struct {
	Op Op
	// Path is the requested path. Its links are not followed.
	Path string
	// Data is the data that was read, which may be only the beginning, or the text of a link. It belongs to the reader,
	// who reuses its memory.
	Data []byte
	// Names are the listed names, sorted.
	Names []string
	Info  fs.FileInfo
	// Err is nil, or the system's own error.
	Err error
}

// Copy answers for a node of which only a copy exists. The copy has the files that were read on the node. It has
// neither the errors of reads nor the files that were not read, so Copy knows these. Paths are as the caller gives
// them.
type Copy interface {
	// Answer returns nil if the copy's own file is the answer. Otherwise it returns the error for the access to the
	// path: the node's error, [syscall.ENOENT] if the node had no such file, or an error that says that the file was
	// not collected.
	Answer(op Op, path string) error
	// Names returns the names in a directory of the node, sorted.
	Names(path string) ([]string, error)
}

// NodeInodes is a [Copy] whose files have the node's own inode numbers.
type NodeInodes interface {
	Copy
	HasNodeInodes()
}

// hasInodes reports whether inode numbers are the node's.
func (f *FS) hasInodes() bool {
	if f.copy == nil {
		return true
	}
	_, has := f.copy.(NodeInodes)
	return has
}

// WithTap returns an FS like f whose tap gets all accesses through it. The tap may be called concurrently. The new FS
// shares the root with f.
func (f *FS) WithTap(tap func(Access)) *FS {
	tapped := *f
	tapped.tap = tap
	return &tapped
}

// WithCopy returns an FS like f that gives the answers of c, for a root that is a copy of a node. It shares the root
// with f.
func (f *FS) WithCopy(c Copy) *FS {
	copied := *f
	copied.copy = c
	return &copied
}

// answer returns the node's error for an access to the path if f is a copy of a node.
func (f *FS) answer(op Op, path string) error {
	if f.copy == nil {
		return nil
	}
	return f.copy.Answer(op, path)
}

// observed passes an access that ended with err to the tap. It returns the error without the operation and the path,
// for the caller's message.
func (f *FS) observed(a Access, err error) error {
	err = reason(err)
	if f.tap != nil {
		a.Err = err
		f.tap(a)
	}
	return err
}

// answer is [FS.answer] for a name in d.
func (d *Dir) answer(op Op, name string) error {
	if d.fs.copy == nil {
		return nil
	}
	return d.fs.copy.Answer(op, d.path+"/"+name)
}

// observed is [FS.observed] of a name in d.
func (d *Dir) observed(a Access, err error) error {
	if d.fs.tap == nil {
		return err
	}
	a.Path = d.path + "/" + a.Path
	return d.fs.observed(a, err)
}
