package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// The files of bootstrap's state, below the node's root.
const (
	stateDir    = "var/lib/kata-vfio/bootstrap"
	journalFile = stateDir + "/journal.json"
	backupDir   = stateDir + "/backups"
)

// version is the version of the journal's format.
const version = 1

// Journal records bootstrap's changes to a node.
type Journal struct {
	Version int `json:"version"`
	// Applied is the time of the last apply. Blueprint is the text of the blueprint that was applied, or empty for the default.
	Applied   time.Time `json:"applied,omitzero"`
	Blueprint string    `json:"blueprint,omitempty"`
	Entries   []Entry   `json:"entries,omitempty"`
	Settings  []Written `json:"settings,omitempty"`
	// Pending are the follow-ups that still have to run.
	Pending []state.FollowUp `json:"pending,omitempty"`
	// Reboot is the ID of the boot in which bootstrap made a change that only the next boot puts into effect.
	Reboot string `json:"reboot,omitempty"`
	// Awaits has the settings that apply left to the next boot, each with the ID of the boot in which it did so.
	Awaits map[string]string `json:"awaits,omitempty"`

	// sum is the checksum of the file that the journal was read from.
	sum string
}

// Entry is a file that bootstrap wrote.
type Entry struct {
	Path string           `json:"path"`
	Part string           `json:"part"`
	Why  string           `json:"why"`
	Then []state.FollowUp `json:"then,omitempty"`
	At   time.Time        `json:"at"`
	// Before is the content that revert restores, and After the content that was written.
	Before state.Image `json:"before"`
	After  state.Image `json:"after"`
	// Was is the previous content. It is set while it is unknown whether After was written.
	Was *state.Image `json:"was,omitempty"`
	// Dirs are the directories that bootstrap created for the file, outermost first.
	Dirs []string `json:"dirs,omitempty"`
}

// Written is a running setting that bootstrap changed.
type Written struct {
	Path   string    `json:"path"`
	Part   string    `json:"part"`
	At     time.Time `json:"at"`
	Before string    `json:"before"`
	After  string    `json:"after"`
	// Began is the ID of the boot in which a write of After began. It is set while it is unknown whether it took effect, or will.
	Began string `json:"began,omitempty"`
}

// ErrDamaged marks a journal that can't be trusted.
var ErrDamaged = errors.New("the journal is damaged")

// sealed is the journal's file, with a checksum that detects damage.
type sealed struct {
	Sum     string          `json:"sum"`
	Journal json.RawMessage `json:"journal"`
}

func (j *Journal) entry(file string) *Entry {
	for i := range j.Entries {
		if j.Entries[i].Path == file {
			return &j.Entries[i]
		}
	}
	return nil
}

func (j *Journal) clone() *Journal {
	c := *j
	c.Entries, c.Settings, c.Pending = slices.Clone(j.Entries), slices.Clone(j.Settings), slices.Clone(j.Pending)
	return &c
}

// empty reports whether the journal can be removed: nothing of bootstrap's is on the node, and no blueprint is kept for
// a later comparison.
func (j *Journal) empty() bool {
	return len(j.Entries) == 0 && len(j.Settings) == 0 && len(j.Pending) == 0 && j.Blueprint == "" && len(j.Awaits) == 0
}

// load returns the journal, or an empty one if there is none.
func (e *Engine) load() (*Journal, error) {
	found, err := e.Files.Look(journalFile)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	j := &Journal{Version: version}
	if found.Kind == state.Absent {
		return j, nil
	}
	var s sealed
	const fix = "restore it from a backup. If you move it away instead, revert can no longer undo earlier changes"
	if err := json.Unmarshal(found.Content, &s); err != nil {
		return nil, fmt.Errorf("/%s: %w: %w; %s", journalFile, ErrDamaged, err, fix)
	}
	if state.Sum(s.Journal) != s.Sum {
		return nil, fmt.Errorf("/%s: %w: its content does not have the checksum in it; %s", journalFile, ErrDamaged, fix)
	}
	if err := json.Unmarshal(s.Journal, j); err != nil {
		return nil, fmt.Errorf("/%s: %w: %w", journalFile, ErrDamaged, err)
	}
	if j.sum = found.Sum; j.Version > version {
		return nil, fmt.Errorf("/%s was written by a newer kata-vfio-bootstrap; use that version", journalFile)
	}
	return j, nil
}

// save writes the journal durably. It removes an empty journal, with its backups.
func (e *Engine) save(j *Journal) error {
	commit, err := e.stageJournal(j)
	if err != nil {
		return err
	}
	return commit()
}

// stageJournal does all of save that needs disk space; commit does the rest.
func (e *Engine) stageJournal(j *Journal) (commit func() error, err error) {
	if j.empty() {
		return e.forget, nil
	}
	body, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	text, err := json.Marshal(sealed{Sum: state.Sum(body), Journal: body})
	if err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	if err = e.makeStateDir(); err == nil {
		commit, _, err = e.Files.Stage(journalFile, text, state.NewImage(0o600))
	}
	if err != nil {
		return nil, fmt.Errorf("write the journal: %w", err)
	}
	return commit, nil
}

// forget removes the journal, and then all backups. A crash in between leaves backups, which the next forget removes.
func (e *Engine) forget() error {
	if err := e.Files.Remove(journalFile); err != nil {
		return fmt.Errorf("remove the journal: %w", err)
	}
	names, err := e.Tree.ReadDir(backupDir)
	if err != nil {
		return nil // usually it does not exist
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, e.Files.Remove(path.Join(backupDir, name)))
	}
	return errors.Join(append(errs, e.Files.RemoveDir(backupDir))...)
}

// makeStateDir creates the directory of bootstrap's state.
func (e *Engine) makeStateDir() error {
	missing, err := e.Files.Missing(journalFile)
	if err != nil {
		return err
	}
	for i, dir := range missing {
		mode := fs.FileMode(0o755) // /var/lib of an image, which all programs use
		if i == len(missing)-1 {
			mode = 0o700
		}
		if err := e.Files.MakeDir(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a content under its checksum, completely or not at all.
func (e *Engine) keep(content []byte) error {
	if err := errors.Join(e.makeStateDir(), e.Files.MakeDir(backupDir, 0o700)); err != nil {
		return err
	}
	name := path.Join(backupDir, state.Sum(content))
	found, err := e.Files.Look(name)
	if err == nil && found.Sum == state.Sum(content) {
		return nil
	}
	return e.Files.Write(name, content, state.NewImage(0o600))
}

// kept returns the stored content of an image.
func (e *Engine) kept(i state.Image) ([]byte, error) {
	if i.Kind != state.RegularFile {
		return nil, nil
	}
	name := path.Join(backupDir, i.Sum)
	found, err := e.Files.Look(name)
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if found.Sum != i.Sum {
		return nil, fmt.Errorf("the backup /%s is missing or damaged", name)
	}
	return found.Content, nil
}

// unfinished reports whether a process ended in the middle of its changes.
func (j *Journal) unfinished() bool {
	return slices.ContainsFunc(j.Entries, func(e Entry) bool { return e.Was != nil })
}

// resumed returns the journal with the outcome of each write that an interrupted process began. Each write was either made or
// not, because files are replaced atomically. resumed does not change the node.
func (e *Engine) resumed(j *Journal) (*Journal, error) {
	j = j.clone()
	var errs []error
	for i := range j.Entries {
		entry := &j.Entries[i]
		if entry.Was == nil {
			continue
		}
		found, err := e.Files.Look(entry.Path)
		errs = append(errs, err)
		if err == nil && !found.Same(entry.After) && found.Same(*entry.Was) {
			entry.After = *entry.Was // it was not made
		}
		entry.Was = nil
	}
	return j, errors.Join(errs...)
}

// resume cleans up after an interrupted process and returns the journal: it removes temporary files, and directories
// for files that were never written.
func (e *Engine) resume(j *Journal) (*Journal, error) {
	if !j.unfinished() {
		return j, nil
	}
	for _, entry := range j.Entries {
		if entry.Was != nil {
			if err := e.Files.Sweep(entry.Path); err != nil {
				return nil, err
			}
		}
	}
	after, err := e.resumed(j)
	if err != nil {
		return nil, err
	}
	after, dirs := after.concluded()
	if err := e.removeDirs(dirs); err != nil {
		return nil, err
	}
	return after, e.save(after)
}

// concluded returns the journal after its intended changes were made. It drops files that are as they were before
// bootstrap. Dirs are the directories that were created only for those files, innermost first.
func (j *Journal) concluded() (after *Journal, dirs []string) {
	after = j.clone()
	after.Entries = slices.DeleteFunc(after.Entries, func(entry Entry) bool {
		back := entry.After.Same(entry.Before)
		if back {
			dirs = append(dirs, entry.Dirs...)
		}
		return back
	})
	for i := range after.Entries {
		after.Entries[i].Was = nil
		// A directory that a remaining file shares is removed with the last of them.
		dirs = slices.DeleteFunc(dirs, func(d string) bool { return slices.Contains(after.Entries[i].Dirs, d) })
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	slices.Reverse(dirs)
	return after, dirs
}

// removeDirs removes those of the directories that are empty.
func (e *Engine) removeDirs(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, e.Files.RemoveDir(dir))
	}
	return errors.Join(errs...)
}
