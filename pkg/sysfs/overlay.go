package sysfs

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Overlay has files that replace those of a node, to show the node's state after planned changes. Fill it before
// [FS.WithOverlay]. After that it is safe for concurrent use.
type Overlay struct {
	files map[string]*overlaid
	// dirs are the directories above the files, with the names that the overlay adds.
	dirs map[string][]string
}

// overlaid is a file of an overlay.
type overlaid struct {
	name, target  string
	content       []byte
	mode          fs.FileMode
	uid, gid      uint32
	removed, link bool
}

// NewOverlay returns an overlay without files.
func NewOverlay() *Overlay {
	return &Overlay{files: map[string]*overlaid{}, dirs: map[string][]string{}}
}

// Put adds a file. The directories above it exist too.
func (o *Overlay) Put(name string, content []byte, mode fs.FileMode, uid, gid uint32) {
	o.add(name, &overlaid{content: content, mode: mode, uid: uid, gid: gid})
}

// Link adds a symbolic link.
func (o *Overlay) Link(name, target string) {
	o.add(name, &overlaid{link: true, target: target, mode: fs.ModeSymlink | fs.ModePerm})
}

// Remove makes a file absent.
func (o *Overlay) Remove(name string) { o.files[path.Clean(name)] = &overlaid{removed: true} }

func (o *Overlay) add(name string, f *overlaid) {
	name = path.Clean(name)
	f.name = path.Base(name)
	o.files[name] = f
	for dir, child := path.Dir(name), path.Base(name); ; dir, child = path.Dir(dir), path.Base(dir) {
		if !slices.Contains(o.dirs[dir], child) {
			o.dirs[dir] = append(o.dirs[dir], child)
		}
		if dir == "." {
			return
		}
	}
}

// WithOverlay returns an FS like f with the files of o. It shares the root with f. [FS.ReadDir] lists the overlay's
// names, but a [Dir] does not see the overlay.
func (f *FS) WithOverlay(o *Overlay) *FS {
	over := *f
	over.over = o
	return &over
}

// overlaid returns the file that replaces the one at a path, or nil.
func (f *FS) overlaid(name string) *overlaid {
	if f.over == nil {
		return nil
	}
	return f.over.files[path.Clean(name)]
}

// read returns the content, or why a file of this kind has none. Callers follow links themselves.
func (o *overlaid) read() ([]byte, error) {
	switch {
	case o.removed:
		return nil, unix.ENOENT
	case o.link:
		return nil, unix.ELOOP
	}
	return bytes.Clone(o.content), nil
}

func (o *overlaid) readLink() (string, error) {
	switch {
	case o.removed:
		return "", unix.ENOENT
	case !o.link:
		return "", unix.EINVAL
	}
	return o.target, nil
}

func (o *overlaid) stat() (fs.FileInfo, error) {
	if o.removed {
		return nil, unix.ENOENT
	}
	return &overlaidInfo{o}, nil
}

// overlaidInfo describes a file of an overlay.
type overlaidInfo struct{ *overlaid }

// Name implements [fs.FileInfo].
func (i *overlaidInfo) Name() string { return i.name }

// Size implements [fs.FileInfo].
func (i *overlaidInfo) Size() int64 { return int64(len(i.content)) }

// Mode implements [fs.FileInfo].
func (i *overlaidInfo) Mode() fs.FileMode { return i.mode }

// ModTime implements [fs.FileInfo]: the file was never written.
func (i *overlaidInfo) ModTime() time.Time { return time.Time{} }

// IsDir implements [fs.FileInfo].
func (i *overlaidInfo) IsDir() bool { return i.mode.IsDir() }

// Sys implements [fs.FileInfo].
func (i *overlaidInfo) Sys() any {
	kind := map[fs.FileMode]uint32{0: syscall.S_IFREG, fs.ModeDir: syscall.S_IFDIR, fs.ModeSymlink: syscall.S_IFLNK, fs.ModeSocket: syscall.S_IFSOCK}[i.mode.Type()]
	return &syscall.Stat_t{Mode: kind | uint32(i.mode.Perm()), Uid: i.uid, Gid: i.gid, Size: i.Size()}
}

// madeDir describes a directory that exists only in the overlay. Otherwise it returns the node's answer.
func (f *FS) madeDir(name string, info fs.FileInfo, err error) (fs.FileInfo, error) {
	if f.over == nil || !errors.Is(err, fs.ErrNotExist) || f.over.dirs[path.Clean(name)] == nil {
		return info, err
	}
	return &overlaidInfo{&overlaid{name: path.Base(name), mode: fs.ModeDir | 0o755}}, nil
}

// joinedNames adds the overlay's names to those of the node's directory.
func (f *FS) joinedNames(dir string, names []string, err error) ([]string, error) {
	if f.over == nil {
		return names, err
	}
	dir = path.Clean(dir)
	added := f.over.dirs[dir]
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || added == nil) {
		return names, err
	}
	all := slices.DeleteFunc(slices.Concat(names, added), func(name string) bool {
		file := f.over.files[path.Join(dir, name)]
		return file != nil && file.removed
	})
	slices.Sort(all)
	return slices.Compact(all), nil
}
