package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// marks are the files of one directory below the journal's: one for each marked
// function, named by its address. They outlive claims' records and reboots.
type marks[M any] struct {
	store *Store
	markKind[M]
}

// markKind is what tells one kind of marks from the others.
type markKind[M any] struct {
	// dir is the directory's name. What is what a mark does, for errors: "mark as unclean";
	// of is what the marked functions are: "not clean".
	dir, what, of string
	// address returns the function that a mark is of.
	address func(*M) pci.Address
	// unreadable returns the mark of a function whose file can't be read.
	unreadable func(a pci.Address, path string) M
}

const markSuffix = ".json"

func (k marks[M]) path(a pci.Address) string {
	return filepath.Join(k.store.dir, k.dir, a.String()+markSuffix)
}

// put writes a mark durably: when it returns nil, the mark survives a power
// failure. One that is there is replaced.
func (k marks[M]) put(m M) error {
	a := k.address(&m)
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.what, a, err)
	}
	return k.store.putIn(k.dir, a.String()+markSuffix, k.what+" "+a.String(), append(data, '\n'))
}

// putIn writes a file durably into a directory of the store; what says what for.
func (s *Store) putIn(dir, name, what string, data []byte) error {
	dir = filepath.Join(s.dir, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &FileError{Path: dir, Err: fmt.Errorf("%s: %w", what, err)}
	}
	path := filepath.Join(dir, name)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("%s: %w", what, err)}
	}
	return errors.Join(syncDir(dir), s.sync())
}

// lift removes a mark durably. A missing one is no error.
func (k marks[M]) lift(a pci.Address) error {
	path := k.path(a)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("lift the mark of %s: %w", a, err)}
	}
	return syncDir(filepath.Dir(path))
}

// all returns the marks by function. A file that can't be read marks its function
// all the same.
func (k marks[M]) all() (map[pci.Address]M, error) { return k.in(disk{}, k.store.dir) }

// in returns the marks of the journal in a directory.
func (k markKind[M]) in(files Files, journal string) (map[pci.Address]M, error) {
	dir := filepath.Join(journal, k.dir)
	names, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{Path: dir, Err: fmt.Errorf("list the functions that are %s: %w", k.of, err)}
	}
	found := map[pci.Address]M{}
	for _, file := range names {
		name, isMark := strings.CutSuffix(file, markSuffix)
		a, err := pci.ParseAddress(name)
		if !isMark || err != nil {
			continue // a write that a crash cut off
		}
		if m, ok := k.read(files, filepath.Join(dir, file), a); ok {
			found[a] = m
		}
	}
	return found, nil
}

// read returns the mark of a, and false for one that was lifted meanwhile.
func (k markKind[M]) read(files Files, path string, a pci.Address) (m M, ok bool) {
	data, err := files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false
	}
	if err != nil || json.Unmarshal(data, &m) != nil || k.address(&m) != a {
		return k.unreadable(a, path), true
	}
	return m, true
}

// Files reads a journal that does not lie on this machine's disk: that of a copy, or
// below another root.
type Files interface {
	ReadDir(path string) ([]string, error)
	ReadFile(path string) ([]byte, error)
}

// disk is this machine's.
type disk struct{}

func (disk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (disk) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// Marks are what a journal says of functions besides its records.
type Marks struct {
	NeedsReset  map[pci.Address]ResetMark
	Drains      map[pci.Address]Drain
	FatalErrors map[pci.Address]FatalErrors
}

// ReadMarks returns the marks of the journal in a directory, as [Store.NeedsReset],
// [Store.Drains] and [Store.FatalErrors] do. Kinds that can't be listed are empty, and the
// error, a [FileError] for each, says why.
func ReadMarks(files Files, dir string) (*Marks, error) {
	var m Marks
	var errs [3]error
	m.NeedsReset, errs[0] = resetMarkKind().in(files, dir)
	m.Drains, errs[1] = drains().in(files, dir)
	m.FatalErrors, errs[2] = fatalErrors().in(files, dir)
	return &m, errors.Join(errs[:]...)
}
