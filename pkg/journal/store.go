package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Store is the directory of records. Its methods may be called concurrently, in one process and in several. To change a
// record, the caller must hold the claim's lock.
type Store struct {
	dir     string
	entries *entries
	// cleaned and sanitized are the calls of MarkClean and MarkSanitized.
	cleaned, sanitized proving

	mu    sync.Mutex // guards cache
	cache map[string]cached
}

// cached is a decoded file.
type cached struct {
	data   []byte
	record *Record
	err    error
	// file is the version of the file that has the data. It is zero if the file was too young for its version to
	// identify it; see settled.
	file version
}

// FileError is the error for a record file that can't be used. It matches [ErrDamaged] or [ErrNewer] if that is the
// cause.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	switch {
	case errors.Is(e.Err, ErrNewer):
		return fmt.Sprintf("%s: %v; run the plugin version that wrote it; before you go back to this one, delete the claim's pods", e.Path, e.Err)
	case errors.Is(e.Err, ErrDamaged):
		return fmt.Sprintf("%s: %v; put it back from a backup, or move it away once no VM uses its devices and their drivers are restored", e.Path, e.Err)
	}
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		return fmt.Sprintf("%s: %v; free space there: claims can't be prepared or released without their record", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// RecordID returns the ID of the record in the file, by the file's name; empty if the path is not that of a record.
func (e *FileError) RecordID() string {
	if name := filepath.Base(e.Path); IsRecord(name) {
		return strings.TrimSuffix(name, ".json")
	}
	return ""
}

// Damaged returns the path of the first record file that can't be read, from the errors of [Store.List]; empty if there
// is none.
func Damaged(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	if file, ok := errors.AsType[*FileError](errs[0]); ok {
		return file.Path
	}
	return errs[0].Error()
}

// Open returns the store in dir. If the directory is missing, Open creates it durably (mode 0700), because a power
// failure must not remove it together with its marks.
func Open(dir string) (*Store, error) {
	if err := MakeDir(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return newStore(dir), nil
}

// OpenReadOnly returns the store in dir without creating the directory. To readers, a missing directory is empty.
func OpenReadOnly(dir string) *Store { return newStore(dir) }

func newStore(dir string) *Store {
	return &Store{dir: dir, entries: newEntries(dir), cache: map[string]cached{}}
}

// Save writes the record durably: when it returns nil, the record survives a power failure. If it returns an error, the
// former record is in place, or the new one if only the sync of the directory failed. In the latter case, a power
// failure may bring the former record back.
func (s *Store) Save(r *Record) error {
	if err := s.Replace(r); err != nil {
		return err
	}
	return s.entries.sync()
}

// Replace is Save without the sync of the directory, for a record whose former state is durable and may come back.
// After a power failure, the file has the former record or this one, both complete.
func (s *Store) Replace(r *Record) error {
	path, err := s.path(r.ID())
	if err != nil {
		return err
	}
	data, err := Encode(r)
	if err != nil {
		return err
	}
	if err := replace(path, data); err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("write record: %w", err)}
	}
	return nil
}

// Delete removes the record durably, with the leftovers of its interrupted writes. A missing record is not an error.
func (s *Store) Delete(id string) error {
	path, err := s.path(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &FileError{Path: path, Err: fmt.Errorf("remove record: %w", err)}
	}
	s.uncache(path)
	if err := s.sweep(id); err != nil {
		return err
	}
	// The directory is synced even if the record was missing, because an earlier Delete may have been interrupted
	// before its sync.
	return s.entries.sync()
}

// Load returns the record, nil if it does not exist, or a [FileError]. The record is shared with other callers: change
// only a [Record.Clone] of it.
func (s *Store) Load(id string) (*Record, error) {
	path, err := s.path(id)
	if err != nil {
		return nil, err
	}
	r, err := s.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

// Lister lists the records of a journal; [Store] implements it.
type Lister interface {
	List() ([]*Record, []error)
}

// List returns all readable records by ID, and a [FileError] for each that is
// not. Records are shared with other callers: change only a [Record.Clone] of one.
func (s *Store) List() ([]*Record, []error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{&FileError{Path: s.dir, Err: fmt.Errorf("list journal: %w", err)}}
	}
	s.uncacheOthers(entries)
	var records []*Record
	var errs []error
	for _, e := range entries {
		if !IsRecord(e.Name()) {
			continue
		}
		r, err := s.read(filepath.Join(s.dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since ReadDir
		case err != nil:
			errs = append(errs, err)
		default:
			records = append(records, r)
		}
	}
	return records, errs
}

// Leftovers returns the IDs of records for which a crash left temporary files of a write. Remove the files by
// [Store.Delete], with the claim's lock held, because another instance of the plugin may be writing.
func (s *Store) Leftovers() ([]string, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, ".*.json*"))
	if err != nil {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var ids []string
	for _, name := range names {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), "."), ".json")
		if idPattern.MatchString(id) {
			ids = append(ids, id)
		}
	}
	// The names are sorted, so a record's several files are neighbors.
	return slices.Compact(ids), nil
}

// sweep removes the temporary files of a record's writes.
func (s *Store) sweep(id string) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("sweep journal: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+id+".json") {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("sweep journal: %w", err))
		}
	}
	return errors.Join(errs...)
}

// read returns the record in path. It reads the file only if the file may have changed since it was last read, and
// decodes it only if its content differs. This matters because, if several claims begin at once, each reads the records
// of all others.
func (s *Store) read(path string) (*Record, error) {
	s.mu.Lock()
	c, ok := s.cache[path]
	s.mu.Unlock()
	if ok && c.file != (version{}) && c.file.isAt(path) {
		return c.record, c.err
	}
	data, file, err := content(path)
	if err != nil {
		s.uncache(path)
		return nil, &FileError{Path: path, Err: err}
	}
	if !ok || !bytes.Equal(c.data, data) {
		c = cached{data: data}
		if c.record, err = DecodeFile(filepath.Base(path), data); err != nil {
			c.err = &FileError{Path: path, Err: err}
		}
	}
	c.file = version{}
	if time.Since(file.written) > settled {
		c.file = file
	}
	s.mu.Lock()
	s.cache[path] = c
	s.mu.Unlock()
	return c.record, c.err
}

// settled is the age at which a file can be identified by its version. A younger file may have a successor with the
// same size, time and inode number: file systems reuse inode numbers, and their times can be as coarse as a second.
const settled = 2 * time.Second

// uncache removes a deleted file from the cache, so that the cache does not grow with each claim.
func (s *Store) uncache(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, path)
}

// uncacheOthers removes the files from the cache that are not in the directory any more: another process has removed
// them.
func (s *Store) uncacheOthers(entries []fs.DirEntry) {
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		there[e.Name()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.cache, func(path string, _ cached) bool { return !there[filepath.Base(path)] })
}

// IsRecord reports whether a file in the journal's directory is a record, by its name.
func IsRecord(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".")
}

// DecodeFile decodes a file in the journal's directory, as [Decode] does. The file must be named after its record;
// otherwise the error matches [ErrDamaged].
func DecodeFile(name string, data []byte) (*Record, error) {
	r, err := Decode(data)
	if err != nil {
		return nil, err
	}
	if r.ID()+".json" != name {
		return nil, fmt.Errorf("%w: it holds claim %s under the name of another", ErrDamaged, r.ID())
	}
	return r, nil
}

// idPattern matches claim UIDs and no name that could leave the directory.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)

func (s *Store) path(id string) (string, error) {
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("claim UID %q: want letters, digits, '.', '_' and '-'", id)
	}
	return filepath.Join(s.dir, id+".json"), nil
}
