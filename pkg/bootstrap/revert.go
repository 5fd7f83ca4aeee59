package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Kept is a file that revert does not change.
type Kept struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Removed is true if the file was removed, and stays removed.
	Removed bool `json:"removed,omitempty"`
	// Diff is from bootstrap's version to the current file.
	Diff string `json:"diff,omitempty"`
}

// Revert restores the bytes, modes and owners of files before bootstrap: of all files, or of those at the given paths below the
// root. It keeps a file that was edited after apply, and reports the difference. A file that was removed stays removed. A
// revert of all files also removes bootstrap's arguments from boot loader entries that were made after apply. If a file or a
// running setting can't be restored, it undoes all changes. If a tool fails afterwards, the changes stay, and the next run
// repeats the tool.
func (e *Engine) Revert(ctx context.Context, paths ...string) (*Result, error) {
	var result *Result
	err := e.locked(ctx, func() error {
		j, err := e.begin()
		if err != nil {
			return err
		}
		result, err = e.revert(ctx, j, paths)
		return err
	})
	return result, err
}

func (e *Engine) revert(ctx context.Context, j *Journal, paths []string) (*Result, error) {
	for _, name := range paths {
		if j.entry(name) == nil {
			return nil, &UnknownError{name}
		}
	}
	after, result := j.clone(), &Result{Changed: []FilePlan{}, Settings: []SettingPlan{}}
	changes, err := e.reversals(after, result, paths)
	if err != nil {
		return nil, err
	}
	all := len(paths) == 0
	if all {
		made, err := e.copies(j, result)
		if err != nil {
			return nil, err
		}
		changes = append(made, changes...)
		result.Settings = e.resettable(after)
		after.Pending, after.Awaits = backward(after.Pending), nil
		if !slices.ContainsFunc(result.Kept, func(k Kept) bool { return !k.Removed }) {
			after.Applied, after.Blueprint = time.Time{}, ""
		}
	}
	p := host.Detect(&pristine{e.Tree, e, j}, e.Live)
	result.Steps = e.steps(p, after.Pending, changes)
	result.Reboot = e.Live && slices.ContainsFunc(changes, func(c change) bool { return slices.Contains(c.file.Then, state.Reboot) })
	if after, err = e.commit(ctx, &work{before: j, after: after, changes: changes, settings: result.Settings, forgets: all}); err != nil {
		return nil, err
	}
	return result, e.run(ctx, after, result.Steps, "revert")
}

// UnknownError names a file that bootstrap did not change.
type UnknownError struct{ Path string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("bootstrap did not change /%s; `kata-vfio-bootstrap status` lists the files that it changed", e.Path)
}

// reversals returns the changes that restore files, the last first.
func (e *Engine) reversals(j *Journal, result *Result, paths []string) ([]change, error) {
	var changes []change
	for _, entry := range slices.Backward(slices.Clone(j.Entries)) {
		if len(paths) > 0 && !slices.Contains(paths, entry.Path) {
			continue
		}
		found, err := e.Files.Look(entry.Path)
		switch {
		case err != nil:
			result.Kept = append(result.Kept, Kept{Path: entry.Path, Why: "it can't be read: " + err.Error()})
		case found.Same(entry.Before), e.withdrawnByOthers(&entry, found):
			j.entry(entry.Path).After = entry.Before // it is restored already, but its follow-ups may be pending
			e.pend(j, &change{file: state.File{Then: backward(entry.Then)}, over: over(entry.Then)})
		case found.Kind == state.Absent:
			j.entry(entry.Path).After = entry.Before
			result.Kept = append(result.Kept, Kept{Path: entry.Path, Removed: true, Why: "it was removed after apply, and stays removed"})
		case !e.asWritten(&entry, found):
			result.Kept = append(result.Kept, Kept{
				Path: entry.Path, Diff: e.since(&entry, found),
				Why: fmt.Sprintf("it was edited after apply. Undo the edit, or discard the file's content with `%s`, then run revert again", e.byHand(&entry)),
			})
		default:
			c, err := e.revertEntry(&entry, found)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
			result.Changed = append(result.Changed, FilePlan{Path: entry.Path, Part: entry.Part, Why: entry.Why, Status: Done, Action: "take back", Diff: c.diff()})
		}
	}
	return changes, nil
}

// byHand returns the command that restores the version before bootstrap, regardless of the current one.
func (e *Engine) byHand(entry *Entry) string {
	file := path.Join(e.Root, entry.Path)
	switch entry.Before.Kind {
	case state.RegularFile:
		return fmt.Sprintf("cp %s %s", path.Join(e.Root, backupDir, entry.Before.Sum), file)
	case state.Link:
		return fmt.Sprintf("ln -sfn %s %s", entry.Before.Target, file)
	case state.Absent, state.Other:
	}
	return "rm " + file
}

// since returns the diff from bootstrap's version to the current file.
func (e *Engine) since(entry *Entry, found state.Found) string {
	written, err := e.kept(entry.After)
	if err != nil {
		return err.Error()
	}
	return unified("written/"+entry.Path, "found/"+entry.Path, text(entry.After, written), text(found.Image, found.Content))
}

// resettable returns the running settings that still have bootstrap's value, or may still get it. A setting that was changed
// later is kept.
func (e *Engine) resettable(j *Journal) []SettingPlan {
	settings := []SettingPlan{}
	for i := range j.Settings {
		w := &j.Settings[i]
		now, _, err := e.setting(w.Path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && now != w.After && !e.underWay(w) || e.Attributes == nil {
			continue
		}
		settings = append(settings, SettingPlan{Setting: state.Setting{Part: w.Part, Path: w.Path, Value: unsetValue(w.Before)}, Now: now, Status: Done})
	}
	return settings
}
