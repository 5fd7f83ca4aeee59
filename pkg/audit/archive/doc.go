// Package archive copies what was read of a node into one file, and reads such a
// file in place of the node. A copy answers exactly as the node did: files that
// could not be read give their errors, what was absent is absent, and what nobody
// looked at is [ErrNotCollected], which checks take as unknown and never as good.
//
// An archive is a .tar.gz of [ManifestName] and of the node's files below
// [TreeName], so that tar(1) opens it for a person. Whoever reads one need not
// trust it: see [Open].
package archive

import (
	"errors"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Names of what an archive holds.
const (
	ManifestName = "manifest.json"
	TreeName     = "node"
)

// Format is the version of the archives that this package writes and reads.
const Format = 1

// ErrNotCollected says that a copy does not tell, since nobody looked when it was
// made: an older collector, or a file that is never collected.
var ErrNotCollected = errors.New("it was not collected")

// Manifest describes an archive.
type Manifest struct {
	Format int `json:"format"`
	// Collector is the version of the program that made it.
	Collector string `json:"collector"`
	// Time is when the node was read, RFC 3339 in UTC.
	Time     string `json:"time"`
	Hostname string `json:"hostname,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	// UID is the user that read, and Hidden counts the functions whose
	// configuration space was not shown in full.
	UID    int `json:"uid"`
	Hidden int `json:"hiddenFunctions"`
	// Ledger says what of the node's ledger is left out; nil where nothing is, or where
	// the node has none.
	Ledger *LedgerCopy `json:"ledger,omitempty"`
	// Lists are the names in the directories that were listed.
	Lists map[string][]string `json:"lists"`
	// Known are files that were there and whose content was not read: they are
	// empty in the archive.
	Known []string `json:"known"`
	// Failures are the looks that failed, absent files included.
	Failures []Failure `json:"failures"`
}

// Failure is a look at a file that failed.
type Failure struct {
	Path string `json:"path"`
	// Op is the way of looking: open, read, list, link, stat.
	Op string `json:"op"`
	// Errno is the system's error number; 0 with Error, the text of any other.
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"`
}

// lockedText stands for [sysfs.ErrLocked], which readers tell from other errors.
const lockedText = "locked"

func failure(path string, op sysfs.Op, err error) Failure {
	f := Failure{Path: path, Op: opNames()[op]}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
		return f
	}
	f.Error = err.Error()
	if errors.Is(err, sysfs.ErrLocked) {
		f.Error = lockedText
	}
	return f
}

// err returns the error that the failure stands for.
func (f *Failure) err() error {
	switch {
	case f.Errno > 0:
		return syscall.Errno(f.Errno)
	case f.Error == lockedText:
		return sysfs.ErrLocked
	}
	return errors.New(f.Error)
}

func opNames() []string { return []string{"open", "read", "list", "link", "stat"} }
