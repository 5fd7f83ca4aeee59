package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// marks are the files of one directory below the journal's directory. There is one file for each marked function, and
// it is named by the address that the function had. The files outlive claims' records and reboots.
type marks[M mark[M]] struct {
	store *Store
	kind  markKind[M]
}

// mark is what is written about one function.
type mark[M any] interface {
	// markedAt returns the address that the function had. markedAs returns the function's identity, which is empty if
	// it is unknown.
	markedAt() pci.Address
	markedAs() device.Identity
	// unreadable returns the mark of a function whose file can't be read. It ignores its receiver.
	unreadable(a pci.Address, path string) M
}

// markKind describes one kind of marks.
type markKind[M mark[M]] struct {
	// dir is the name of the directory. what and of are for errors: what describes the mark ("mark as unclean"), and of
	// the marked functions ("not clean").
	dir, what, of string
}

// file is the file of a mark.
type file[M mark[M]] struct {
	name string
	mark M
}

// A mark's file is named "0000:3b:00.0.json". If a file of that name marks another device that had the address before,
// the new file is named "0000:3b:00.0+1.json".
const (
	markSuffix  = ".json"
	markCounter = "+"
)

// MarkAddress returns the address in the name of a mark's file; false for another file, such as an interrupted write.
func MarkAddress(name string) (pci.Address, bool) {
	base, isMark := strings.CutSuffix(name, markSuffix)
	base, _, _ = strings.Cut(base, markCounter)
	a, err := pci.ParseAddress(base)
	return a, isMark && err == nil
}

// concerns reports whether a mark marks the function. The identities decide; if one of them is unknown, the address does.
func concerns[M mark[M]](m M, a pci.Address, id device.Identity) bool {
	marked := m.markedAs()
	if marked == (device.Identity{}) || id == (device.Identity{}) {
		return m.markedAt() == a
	}
	return marked.Match(id) == device.Agrees
}

// put writes marks durably: when it returns nil, they survive a power failure. A mark replaces one of the same function.
// It looks at the directory once for all marks, and waits once until it is on disk.
func (k marks[M]) put(ctx context.Context, all ...M) error {
	if len(all) == 0 {
		return nil
	}
	if err := k.makeDir(all[0]); err != nil {
		return err
	}
	return k.alone(ctx, func() error { return k.putLocked(all...) })
}

// putLocked is put for a caller that has the lock.
func (k marks[M]) putLocked(all ...M) error {
	files, err := k.kind.files(disk{}, k.store.dir)
	if err != nil {
		return err
	}
	for _, m := range all {
		f := k.place(&files, m)
		f.mark = m // for the marks after it
		if err := k.write(f.name, m); err != nil {
			return errors.Join(err, k.sync())
		}
	}
	return k.sync()
}

// place returns the file for a mark among the files: that of the same function, or a new one, which it adds.
func (k marks[M]) place(files *[]file[M], m M) *file[M] {
	a := m.markedAt()
	for i := range slices.Backward(*files) {
		f := &(*files)[i]
		if at, _ := MarkAddress(f.name); at == a && concerns(f.mark, a, m.markedAs()) {
			return f
		}
	}
	*files = append(*files, file[M]{name: freeName(*files, a)})
	return &(*files)[len(*files)-1]
}

// freeName returns a name for the mark of a function at an address.
func freeName[M mark[M]](files []file[M], a pci.Address) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(files, func(f file[M]) bool { return f.name == name })
	}
	name := a.String() + markSuffix
	for n := 1; taken(name); n++ {
		name = a.String() + markCounter + strconv.Itoa(n) + markSuffix
	}
	return name
}

// makeDir makes the directory of the marks, which only the first mark needs. A directory that does not exist can't be
// locked.
func (k marks[M]) makeDir(m M) error {
	dir := k.dir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &FileError{Path: dir, Err: fmt.Errorf("%s %s: %w", k.kind.what, m.markedAt(), err)}
	}
	return nil
}

func (k marks[M]) dir() string { return filepath.Join(k.store.dir, k.kind.dir) }

// write writes a mark into the file with the name, and waits until its content is on disk. Its caller has the lock, and
// calls sync after it.
func (k marks[M]) write(name string, m M) error {
	what := k.kind.what + " " + m.markedAt().String()
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	path := filepath.Join(k.dir(), name)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(k.dir())); err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("%s: %w", what, err)}
	}
	return nil
}

// sync waits until the entries of written marks are on disk. Both directories are synced: a mark's entry is in the
// directory of its kind, and the entry of that directory, which makeDir may have made, is in the journal's.
func (k marks[M]) sync() error { return errors.Join(syncDir(k.dir()), k.store.entries.sync()) }

// change rewrites those of the files that edit changes. Its caller has the lock. It reads each of them again, because a
// plugin of an earlier version changes marks without the lock, and skips a file that has gone.
func (k marks[M]) change(files []file[M], edit func(*M) (changed bool)) error {
	var errs []error
	for _, f := range files {
		if m := f.mark; !edit(&m) {
			continue
		}
		now, there := k.kind.read(disk{}, filepath.Join(k.dir(), f.name), f.mark.markedAt())
		if there && edit(&now) {
			errs = append(errs, k.write(f.name, now))
		}
	}
	if len(errs) == 0 { // nothing was written
		return nil
	}
	return errors.Join(append(errs, k.sync())...)
}

// lift removes the marks of a function durably, and returns the files of all others. A missing mark is not an error. Its
// caller has the lock.
func (k marks[M]) lift(a pci.Address, id device.Identity) (others []file[M], err error) {
	return k.liftIf(func(f *file[M]) bool { return concerns(f.mark, a, id) })
}

// liftElsewhere removes the marks of a function at addresses other than a. If the identity is unknown, it removes none.
func (k marks[M]) liftElsewhere(a pci.Address, id device.Identity) error {
	_, err := k.liftIf(func(f *file[M]) bool {
		marked := f.mark.markedAs()
		return f.mark.markedAt() != a && marked != (device.Identity{}) && id != (device.Identity{}) && marked.Match(id) == device.Agrees
	})
	return err
}

// liftIf removes the marks for which meant returns true durably, and returns the files of all others.
func (k marks[M]) liftIf(meant func(*file[M]) bool) (others []file[M], err error) {
	files, err := k.kind.files(disk{}, k.store.dir)
	if err != nil {
		return nil, err
	}
	for i := range files {
		if !meant(&files[i]) {
			others = append(others, files[i])
			continue
		}
		path := filepath.Join(k.dir(), files[i].name)
		err := unix.Unlink(path) // os.Remove would also try rmdir
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &FileError{Path: path, Err: fmt.Errorf("lift the mark of %s: %w", files[i].mark.markedAt(), err)}
		}
	}
	if len(others) == len(files) {
		return others, nil
	}
	return others, syncDir(k.dir())
}

// all returns the marks by address. An unreadable file still marks its function.
func (k marks[M]) all() ([]M, error) { return k.kind.in(disk{}, k.store.dir) }

// in returns the marks of the journal in a directory.
func (k markKind[M]) in(from Files, journal string) ([]M, error) {
	files, err := k.files(from, journal)
	all := make([]M, len(files))
	for i := range files {
		all[i] = files[i].mark
	}
	return all, err
}

// files returns the files of marks, by address.
func (k markKind[M]) files(from Files, journal string) ([]file[M], error) {
	dir := filepath.Join(journal, k.dir)
	names, err := from.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{Path: dir, Err: fmt.Errorf("list the functions that are %s: %w", k.of, err)}
	}
	var found []file[M]
	for _, name := range names {
		a, isMark := MarkAddress(name)
		if !isMark {
			continue
		}
		if m, there := k.read(from, filepath.Join(dir, name), a); there {
			found = append(found, file[M]{name: name, mark: m})
		}
	}
	slices.SortStableFunc(found, func(a, b file[M]) int { return a.mark.markedAt().Compare(b.mark.markedAt()) })
	return found, nil
}

// read returns the mark of a, and false if the mark was removed since it was listed.
func (k markKind[M]) read(files Files, path string, a pci.Address) (m M, ok bool) {
	data, err := files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false
	}
	if err != nil {
		return m.unreadable(a, path), true
	}
	return k.decode(path, data, a), true
}

// decode returns the mark in a file whose name has the address. If the file has other content, the mark still marks the
// function at that address.
func (k markKind[M]) decode(path string, data []byte, a pci.Address) (m M) {
	if json.Unmarshal(data, &m) != nil || m.markedAt() != a {
		return m.unreadable(a, path)
	}
	return m
}

// Files reads a journal that is not on this machine's disk: in an archive, or below another root.
type Files interface {
	ReadDir(path string) ([]string, error)
	ReadFile(path string) ([]byte, error)
}

// disk reads this machine's disk.
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
	NeedsReset  []ResetMark
	Drains      []Drain
	FatalErrors []FatalErrors
	Unsanitized []SanitizeMark
	Sanitized   []SanitizeProof
}

// ReadMarks returns the marks of the journal in a directory, as [Store.NeedsReset], [Store.Drains], [Store.FatalErrors],
// [Store.Unsanitized] and [Store.Sanitized] do. Kinds that can't be listed are empty, and the error contains a [FileError]
// for each.
func ReadMarks(files Files, dir string) (*Marks, error) {
	var m Marks
	var errs [5]error
	m.NeedsReset, errs[0] = resetMarkKind().in(files, dir)
	m.Drains, errs[1] = drains().in(files, dir)
	m.FatalErrors, errs[2] = fatalErrors().in(files, dir)
	m.Unsanitized, errs[3] = sanitizeMarkKind().in(files, dir)
	m.Sanitized, errs[4] = sanitizeProofKind().in(files, dir)
	return &m, errors.Join(errs[:]...)
}
