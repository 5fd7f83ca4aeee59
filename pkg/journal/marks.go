package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// marks are the files of one directory below the journal's: one for each marked
// function, named by its address. They outlive claims' records and reboots.
type marks[M any] struct {
	store *Store
	markKind[M]
}

// markKind describes one kind of marks.
type markKind[M any] struct {
	// dir is the directory's name. What is what a mark does, for errors: "mark as unclean";
	// of is what the marked functions are: "not clean".
	dir, what, of string
	// address returns the function of a mark.
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

// putIn writes a file durably into a directory of the store. Errors name it by what.
func (s *Store) putIn(dir, name, what string, data []byte) error {
	dir = filepath.Join(s.dir, dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &FileError{Path: dir, Err: fmt.Errorf("%s: %w", what, err)}
	}
	path := filepath.Join(dir, name)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("%s: %w", what, err)}
	}
	return errors.Join(syncDir(dir), s.entries.sync())
}

// lift removes a mark durably. A missing mark is not an error.
func (k marks[M]) lift(a pci.Address) error {
	path := k.path(a)
	err := unix.Unlink(path) // os.Remove would look for a directory, too
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("lift the mark of %s: %w", a, err)}
	}
	return syncDir(filepath.Dir(path))
}

// all returns the marks by function. An unreadable file still marks its function.
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

// read returns the mark of a, and false if the mark was removed since it was listed.
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

// Marks are a journal's entries about functions, other than records.
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

// Drain marks a drained function: no new claim gets it, or a function that must go with it (its group and companions, a
// PF's VFs). A claim that has it keeps it. The mark survives reboots, and only the operator removes it.
type Drain struct {
	Address pci.Address `json:"address"`
	// Reason is the operator's.
	Reason string `json:"reason"`
	// Evict says that pods which have it are to go, too.
	Evict bool `json:"evict,omitempty"`
	// By is who asked for it: "uid 0, alice by sudo".
	By string `json:"by,omitempty"`
	// Since is when it was asked for, RFC 3339 in UTC.
	Since string `json:"since"`
}

// Concerns reports whether a record has the drained function, or a VF of it.
func (d *Drain) Concerns(rec *Record) bool {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.Address == d.Address || fn.PF != nil && *fn.PF == d.Address {
			return true
		}
	}
	return false
}

// SortDrains returns marks by address.
func SortDrains(byAddress map[pci.Address]Drain) []Drain {
	all := make([]Drain, 0, len(byAddress))
	for _, d := range byAddress {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Drain) int { return a.Address.Compare(b.Address) })
	return all
}

func (s *Store) marksDrain() marks[Drain] { return marks[Drain]{s, drains()} }

func drains() markKind[Drain] {
	return markKind[Drain]{
		dir: "drained", what: "mark as drained", of: "drained",
		address:    func(d *Drain) pci.Address { return d.Address },
		unreadable: func(a pci.Address, path string) Drain { return Drain{Address: a, Reason: unreadable(path)} },
	}
}

// MarkDrained writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkDrained(d Drain) error { return s.marksDrain().put(d) }

// LiftDrain lifts a mark durably. A missing mark is not an error.
func (s *Store) LiftDrain(a pci.Address) error { return s.marksDrain().lift(a) }

// Drains returns all marks. An unreadable file still marks its function. After an error it is not known which
// functions are in use.
func (s *Store) Drains() (map[pci.Address]Drain, error) { return s.marksDrain().all() }

// FatalErrors is the number of fatal errors of a function that are accounted for: those that the kernel had counted when
// the function was last proven clean, or when an operator returned it to use. The kernel counts from the boot, or from
// when it found the function.
type FatalErrors struct {
	Address pci.Address `json:"address"`
	BootID  string      `json:"bootID"`
	Count   uint64      `json:"count"`
}

func (s *Store) marksFatalErrors() marks[FatalErrors] { return marks[FatalErrors]{s, fatalErrors()} }

func fatalErrors() markKind[FatalErrors] {
	return markKind[FatalErrors]{
		dir: "fatal-errors", what: "account for fatal errors", of: "without new fatal errors",
		address:    func(m *FatalErrors) pci.Address { return m.Address },
		unreadable: func(a pci.Address, _ string) FatalErrors { return FatalErrors{Address: a} }, // accounts for none
	}
}

// MarkFatalErrors writes a mark durably. One that is there is replaced.
func (s *Store) MarkFatalErrors(m FatalErrors) error { return s.marksFatalErrors().put(m) }

// FatalErrors returns all marks.
func (s *Store) FatalErrors() (map[pci.Address]FatalErrors, error) { return s.marksFatalErrors().all() }

// Unaccounted returns the functions that reported fatal errors for which no mark of this
// boot accounts.
func Unaccounted(snap *device.Snapshot, marks map[pci.Address]FatalErrors) map[pci.Address]bool {
	grown := map[pci.Address]bool{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		m, marked := marks[f.Address]
		accounted := marked && m.BootID == snap.Host.BootID && m.Count == f.FatalErrors
		if f.FatalErrors > 0 && !accounted {
			grown[f.Address] = true
		}
	}
	return grown
}

// ResetMark marks a function that a tenant could reach and for which no reset has been proven since: its claim's
// class waives the reset, or the node went down, or the function was off the bus when its claim was released. It
// outlives the claim's record and reboots (a restart of the machine is not a proof). The next proven reset lifts
// it.
type ResetMark struct {
	Address pci.Address `json:"address"`
	// Claim is the UID of the claim that had the function.
	Claim string `json:"claim"`
	// Why is a phrase: "class waives the reset".
	Why string `json:"why"`
	// Since is when that claim ended here, RFC 3339 in UTC.
	Since string `json:"since"`
}

func (s *Store) resetMarks() marks[ResetMark] { return marks[ResetMark]{s, resetMarkKind()} }

func resetMarkKind() markKind[ResetMark] {
	return markKind[ResetMark]{
		dir: "unclean", what: "mark as unclean", of: "not clean",
		address:    func(m *ResetMark) pci.Address { return m.Address },
		unreadable: func(a pci.Address, path string) ResetMark { return ResetMark{Address: a, Why: unreadable(path)} },
	}
}

func unreadable(path string) string { return "its mark " + path + " can't be read" }

// MarkNeedsReset writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkNeedsReset(m ResetMark) error { return s.resetMarks().put(m) }

// MarkClean lifts a mark durably, after a proven reset. A missing mark is not an error.
func (s *Store) MarkClean(a pci.Address) error { return s.resetMarks().lift(a) }

// NeedsReset returns all marks. An unreadable file still marks its function. After an error it is not known which
// functions are clean.
func (s *Store) NeedsReset() (map[pci.Address]ResetMark, error) { return s.resetMarks().all() }
