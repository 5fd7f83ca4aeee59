package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// ErrReadOnly is the error of every change by the engine of [ReadOnly].
var ErrReadOnly = errors.New("this engine only plans")

// ReadOnly returns an engine that plans for a running node, or a copy of its whole tree, and can't change it. It can't
// tell whether the node's file systems are mounted read-only: they may be for this process, but not for the node. The
// caller keeps the tree open.
func ReadOnly(tree *sysfs.FS) *Engine {
	return &Engine{Root: tree.Path(), Live: true, Tree: tree, Files: readOnly{tree}, Parts: Parts(), Now: time.Now}
}

// readOnly are the node's files as package sysfs reads them.
type readOnly struct{ tree *sysfs.FS }

// Look implements [Files].
func (r readOnly) Look(name string) (state.Found, error) {
	info, err := r.tree.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state.Found{Image: state.Image{Kind: state.Absent}}, nil
	case err != nil:
		return state.Found{}, err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := r.tree.ReadLink(name)
		return state.Found{Image: state.Image{Kind: state.Link, Target: target}, ModTime: info.ModTime()}, err
	case !info.Mode().IsRegular():
		return state.Found{Image: state.Image{Kind: state.Other}, ModTime: info.ModTime()}, nil
	}
	content, err := r.tree.ReadAtMost(name, state.MaxImage+1)
	if err == nil && len(content) > state.MaxImage {
		err = fmt.Errorf("read %s: it is larger than %d bytes", name, state.MaxImage)
	}
	if err != nil {
		return state.Found{}, err
	}
	like := state.Image{Kind: state.RegularFile, Sum: state.Sum(content), Mode: info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)}
	like.UID, like.GID = state.Owner(info)
	return state.Found{Image: like, Content: content, ModTime: info.ModTime()}, nil
}

// Writable implements [Files]: see [ReadOnly].
func (readOnly) Writable(string) error { return nil }

// Missing implements [Files]. It returns no directories, because callers ask in order to make them, which [readOnly.MakeDir]
// refuses.
func (readOnly) Missing(string) ([]string, error) { return nil, nil }

// Write implements [Files].
func (readOnly) Write(string, []byte, state.Image) error { return ErrReadOnly }

// Stage implements [Files].
func (readOnly) Stage(string, []byte, state.Image) (commit, discard func() error, err error) {
	return nil, nil, ErrReadOnly
}

// Symlink implements [Files].
func (readOnly) Symlink(string, string) error { return ErrReadOnly }

// Remove implements [Files].
func (readOnly) Remove(string) error { return ErrReadOnly }

// MakeDir implements [Files].
func (readOnly) MakeDir(string, fs.FileMode) error { return ErrReadOnly }

// RemoveDir implements [Files].
func (readOnly) RemoveDir(string) error { return ErrReadOnly }

// Sweep implements [Files].
func (readOnly) Sweep(string) error { return ErrReadOnly }

// Lock implements [Files].
func (readOnly) Lock(context.Context, string) (release func(), err error) { return nil, ErrReadOnly }
