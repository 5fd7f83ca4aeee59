// Package archive copies the data that was read from a node into one file, and reads such a file instead of the node. A copy
// answers exactly as the node did: files that could not be read give their errors, and absent files are absent. Files that were not
// read give [ErrNotCollected], which checks treat as unknown, never as good.
//
// An archive is a .tar.gz of [ManifestName] and of the node's files below [treeName], so that you can open it with
// tar(1). Readers need not trust an archive: see [Open].
package archive

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Names in an archive.
const (
	ManifestName = "manifest.json"
	treeName     = "node"
)

// Format is the version of the archives that this package writes and reads.
const Format = 1

// ErrNotCollected says that a copy can't answer, because the file was not read when the copy was made: an older collector made it,
// or the file is never collected.
var ErrNotCollected = errors.New("it was not collected")

// Manifest describes an archive.
type Manifest struct {
	Format int `json:"format"`
	// Collector is the version of the program that made the archive.
	Collector string `json:"collector"`
	// Time is the time of reading, RFC 3339 in UTC.
	Time     string `json:"time"`
	Hostname string `json:"hostname,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	// UID is the user who read the node, and Hidden counts the functions whose configuration space was not
	// readable completely.
	UID    int `json:"uid"`
	Hidden int `json:"hiddenFunctions"`
	// Ledger says which parts of the node's ledger are left out. It is nil if none is left out, or if the node has no ledger.
	Ledger *LedgerCopy `json:"ledger,omitempty"`
	// RuleFiles are the files of the organization's own rules. The archive has the settings that these rules compare.
	RuleFiles []rule.File `json:"ruleFiles,omitempty"`
	// Lists are the names in the directories that were listed.
	Lists map[string][]string `json:"lists"`
	// Known are the files that existed, but whose content was not read. They are empty in the archive.
	Known []string `json:"known"`
	// Failures are the accesses that failed, including those of absent files.
	Failures []Failure `json:"failures"`
}

// Failure is a failed access of a file.
type Failure struct {
	Path string `json:"path"`
	// Op is the kind of access: open, read, list, link, stat.
	Op string `json:"op"`
	// Errno is the system's error number. For other errors, it is 0, and Error is the text.
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"`
}

// lockedText is the Error of [sysfs.ErrLocked], which readers distinguish from other errors.
const lockedText = "locked"

func failure(name string, op sysfs.Op, err error) Failure {
	f := Failure{Path: name, Op: opNames()[op]}
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

// err returns the error that the failure recorded.
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

// Write writes the records as an archive. Write fills in the manifest's lists and failures. It removes or hides data that must not
// leave the node: see [Recorder.censor].
func (r *Recorder) Write(w io.Writer, m Manifest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// This comes before the manifest, whose lists contain the process IDs too.
	r.censor()
	compressed := gzip.NewWriter(&limited{to: w, left: maxArchive})
	out := &writer{tar: tar.NewWriter(&limited{to: compressed, left: maxStream}), made: map[string]bool{}}
	out.time, _ = time.Parse(time.RFC3339, m.Time)
	places := slices.Sorted(maps.Keys(r.entries))
	r.look(places)
	if err := out.manifest(r.manifest(m, places)); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	for _, place := range places {
		if err := out.entry(place, r.entries[place]); err != nil {
			return fmt.Errorf("write archive: %s: %w", place, err)
		}
	}
	if err := errors.Join(out.tar.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// look asks the node for the owners of files, and whether the files exist. Callers hold mu.
func (r *Recorder) look(places []string) {
	names := map[string][]string{} // by directory
	for _, place := range places {
		if e := r.entries[place]; !e.content && !e.absent() {
			names[path.Dir(place)] = append(names[path.Dir(place)], path.Base(place))
		}
	}
	inParallel(slices.Sorted(maps.Keys(names)), func(dir string) {
		for i, info := range r.node.LstatIn(dir, names[dir]...) {
			if info != nil { // nil if the file is gone
				e := r.entries[path.Join(dir, names[dir][i])]
				e.attributes, e.opened = newAttributes(info.Mode, info.Uid, info.Gid), true
			}
		}
	})
}

// absent reports whether the file does not exist.
func (e *entry) absent() bool {
	for _, err := range e.failed {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return !e.read && !e.link && !e.listed
		}
	}
	return false
}

// isDir reports whether the file is a directory.
func (e *entry) isDir() bool { return e.listed || !e.read && e.attributes != nil && e.attributes.dir }

// known reports whether the file existed, but its content was not read.
func (e *entry) known() bool { return e.opened && !e.read && !e.link && !e.isDir() }

func (r *Recorder) manifest(m Manifest, places []string) Manifest {
	m.Format, m.Lists, m.Known, m.Failures = Format, map[string][]string{}, []string{}, []Failure{}
	for _, place := range places {
		e := r.entries[place]
		if e.listed {
			m.Lists[place] = orEmpty(e.names)
		}
		if e.known() {
			m.Known = append(m.Known, place)
		}
		for op := range opNames() {
			if err := e.failed[sysfs.Op(op)]; err != nil {
				f := failure(place, sysfs.Op(op), err)
				f.Error = r.text(f.Error)
				m.Failures = append(m.Failures, f)
			}
		}
	}
	return m
}

// orEmpty returns names, as a list that JSON does not write as null.
func orEmpty(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// writer writes an archive.
type writer struct {
	tar  *tar.Writer
	time time.Time
	made map[string]bool // directories that are counted
	contents
}

func (w *writer) manifest(m Manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxManifest {
		return fmt.Errorf("its %s has %d bytes, and readers read at most %d: the node has too many files", ManifestName, len(data), maxManifest)
	}
	return w.file(ManifestName, data, nil)
}

// entry writes one file, or nothing if it did not exist.
func (w *writer) entry(place string, e *entry) error {
	if place == "." || !e.link && !e.isDir() && !e.read && !e.known() {
		return nil
	}
	if err := e.fits(place); err != nil {
		return fmt.Errorf("readers would refuse the archive: %w; audit the node itself (`kata-vfio-audit node`)", err)
	}
	if err := w.measure(place, e); err != nil {
		return fmt.Errorf("readers would refuse the archive: %w; make it smaller, by a smaller --ledger", err)
	}
	name := path.Join(treeName, place)
	switch {
	case e.link:
		return w.tar.WriteHeader(w.header(name, tar.TypeSymlink, e))
	case e.isDir():
		return w.tar.WriteHeader(w.header(name+"/", tar.TypeDir, e))
	case e.read:
		return w.file(name, e.data, e)
	}
	return w.file(name, nil, e) // only its existence is known
}

func (w *writer) file(name string, data []byte, e *entry) error {
	h := w.header(name, tar.TypeReg, e)
	h.Size = int64(len(data))
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.tar.Write(data)
	return err
}

// header returns a file's header, with its owner and mode on the node.
func (w *writer) header(name string, kind byte, e *entry) *tar.Header {
	// Paths below /sys/devices can be longer than the older formats of tar allow.
	h := &tar.Header{Typeflag: kind, Name: name, Mode: 0o600, ModTime: w.time, Format: tar.FormatPAX}
	if kind == tar.TypeDir {
		h.Mode = 0o700
	}
	if e == nil {
		return h
	}
	h.Linkname = e.target
	if e.attributes != nil {
		h.Mode, h.Uid, h.Gid = int64(e.attributes.mode), int(e.attributes.uid), int(e.attributes.gid)
	}
	return h
}
