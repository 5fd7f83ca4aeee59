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

// Unclean marks a function that a tenant could reach and for which no reset has
// been proven since: its claim's class waives the reset, or the node went down,
// or the function was off the bus when its claim was released. It outlives the
// claim's record and reboots (a restart of the machine is no proof), and is
// lifted by the next proven reset.
type Unclean struct {
	Address pci.Address `json:"address"`
	// Claim is the UID of the claim that had the function.
	Claim string `json:"claim"`
	// Why is a phrase: "class waives the reset".
	Why string `json:"why"`
	// Since is when that claim ended here, RFC 3339 in UTC.
	Since string `json:"since"`
}

// uncleanDir holds one file for each mark, named by the function's address.
const uncleanDir = "unclean"

const markSuffix = ".json"

// MarkUnclean writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkUnclean(m Unclean) error {
	dir := filepath.Join(s.dir, uncleanDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &FileError{Path: dir, Err: fmt.Errorf("mark %s as unclean: %w", m.Address, err)}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("mark %s as unclean: %w", m.Address, err)
	}
	path := s.markPath(m.Address)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(dir)); err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("mark %s as unclean: %w", m.Address, err)}
	}
	return errors.Join(syncDir(dir), s.sync())
}

// MarkClean lifts a mark durably, after a proven reset. A missing one is no
// error.
func (s *Store) MarkClean(a pci.Address) error {
	path := s.markPath(a)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &FileError{Path: path, Err: fmt.Errorf("lift the mark of %s: %w", a, err)}
	}
	return syncDir(filepath.Dir(path))
}

// Unclean returns all marks. A file that can't be read marks its function all
// the same. An error means that nobody knows which functions are clean.
func (s *Store) Unclean() (map[pci.Address]Unclean, error) {
	dir := filepath.Join(s.dir, uncleanDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &FileError{Path: dir, Err: fmt.Errorf("list the functions that are not clean: %w", err)}
	}
	marks := map[pci.Address]Unclean{}
	for _, e := range entries {
		name, isMark := strings.CutSuffix(e.Name(), markSuffix)
		a, err := pci.ParseAddress(name)
		if !isMark || err != nil {
			continue // a write that a crash cut off
		}
		if m, ok := readMark(filepath.Join(dir, e.Name()), a); ok {
			marks[a] = m
		}
	}
	return marks, nil
}

// readMark returns the mark of a, with the reason why it can't be read if so,
// and false for one that was lifted meanwhile.
func readMark(path string, a pci.Address) (m Unclean, ok bool) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Unclean{}, false
	}
	if err != nil || json.Unmarshal(data, &m) != nil || m.Address != a {
		return Unclean{Address: a, Why: "its mark " + path + " can't be read"}, true
	}
	return m, true
}

func (s *Store) markPath(a pci.Address) string {
	return filepath.Join(s.dir, uncleanDir, a.String()+markSuffix)
}
