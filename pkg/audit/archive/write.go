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

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Write writes what was recorded as an archive. The manifest's lists and failures
// are filled in. What must not leave the node is left out or blackened: see
// [Recorder.censor].
func (r *Recorder) Write(w io.Writer, m Manifest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.censor()
	compressed := gzip.NewWriter(w)
	out := &writer{tar: tar.NewWriter(compressed)}
	out.time, _ = time.Parse(time.RFC3339, m.Time)
	places := slices.Sorted(maps.Keys(r.entries))
	for _, place := range places {
		r.look(place)
	}
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

// look finds out whose a file is, and whether there is one.
func (r *Recorder) look(place string) {
	e := r.entries[place]
	if e.content || e.absent() {
		return
	}
	info, err := r.node.Lstat(place)
	if err != nil {
		return // it has gone meanwhile, or never was
	}
	e.info, e.opened = info, true
}

// absent reports whether there is no such file.
func (e *entry) absent() bool {
	for _, err := range e.failed {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return !e.read && !e.link && !e.listed
		}
	}
	return false
}

// isDir reports whether the file is a directory.
func (e *entry) isDir() bool { return e.listed || !e.read && e.info != nil && e.info.IsDir() }

// known reports whether the file was there, but its content is not.
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
}

func (w *writer) manifest(m Manifest) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return w.file(ManifestName, data, nil)
}

// entry writes one file; nothing for what was not there.
func (w *writer) entry(place string, e *entry) error {
	name := path.Join(TreeName, place)
	switch {
	case place == ".":
		return nil
	case e.link:
		return w.tar.WriteHeader(w.header(name, tar.TypeSymlink, e))
	case e.isDir():
		return w.tar.WriteHeader(w.header(name+"/", tar.TypeDir, e))
	case e.read:
		return w.file(name, e.data, e)
	case e.known():
		return w.file(name, nil, e)
	}
	return nil
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
	h := &tar.Header{Typeflag: kind, Name: name, Mode: 0o600, ModTime: w.time, Format: tar.FormatPAX}
	if kind == tar.TypeDir {
		h.Mode = 0o700
	}
	if e == nil {
		return h
	}
	h.Linkname = e.target
	if e.info == nil {
		return h
	}
	h.Mode = int64(e.info.Mode().Perm())
	if sys, ok := e.info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(sys.Uid), int(sys.Gid)
	}
	return h
}
