package sysfs

import (
	"io/fs"
)

// Op is a way of looking at a file.
type Op int

// Ways of looking. OpOpen is of a directory, or of a file about to be read.
const (
	OpOpen Op = iota
	OpRead
	OpList
	OpLink
	OpStat
)

// Access is one look at a file and what it gave: who is told of all of them can
// make a copy of what was seen.
type Access struct {
	Op Op
	// Path is as it was asked for, links in it not followed.
	Path string
	// Data is what was read, maybe only the beginning, or a link's text. It is the
	// reader's, who will use it again.
	Data []byte
	// Names are those that were listed, sorted.
	Names []string
	Info  fs.FileInfo
	// Err is nil, or the system's own error.
	Err error
}

// Copy says what the node answered, whose copy is read: the copy has what was
// read, and not the errors and what nobody looked at. Paths are as they are asked
// for.
type Copy interface {
	// Answer returns nil where the copy's own file answers, and else the error for
	// that look at the path: the node's own, or that it was not collected. It is
	// [syscall.ENOENT] where the node had no such file.
	Answer(op Op, path string) error
	// Names returns what was in a directory of the node, sorted.
	Names(path string) ([]string, error)
}

// WithTap returns f with everything that is read through it told to tap, which is
// called by many goroutines at once. It shares the root with f.
func (f *FS) WithTap(tap func(Access)) *FS {
	tapped := *f
	tapped.tap = tap
	return &tapped
}

// WithCopy returns f, whose root holds what c is a copy of. It shares the root
// with f.
func (f *FS) WithCopy(c Copy) *FS {
	copied := *f
	copied.copy = c
	return &copied
}

// answer returns the node's error for a look at the path, where f is a copy.
func (f *FS) answer(op Op, path string) error {
	if f.copy == nil {
		return nil
	}
	return f.copy.Answer(op, path)
}

// observed tells the tap of an access that ended with err, and returns the reason for
// the caller's message.
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

// observed is [FS.told] of a name in d.
func (d *Dir) observed(a Access, err error) error {
	if d.fs.tap == nil {
		return err
	}
	a.Path = d.path + "/" + a.Path
	return d.fs.observed(a, err)
}
