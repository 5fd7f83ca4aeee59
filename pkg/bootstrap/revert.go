package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/diff"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/disk"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Kept is a file that revert leaves as it is.
type Kept struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Diff is from what bootstrap wrote to what is there.
	Diff string `json:"diff,omitempty"`
}

// Revert brings back what was before bootstrap, all files or those that are named, by
// their paths below the root, to the byte and with their modes and owners. What
// somebody has changed since is kept, and told with the difference; what somebody has
// removed stays removed. After an error nothing is changed.
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
	after, result := j.clone(), &Result{}
	changes, err := e.reversals(after, result, paths)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		result.Settings = e.resettable(after)
		after.Settings = nil
	}
	p := platform.Detect(&pristine{e.Tree, e, j}, e.Live)
	result.Steps = e.steps(p, j.Pending, changes)
	result.Reboot = e.Live && slices.ContainsFunc(changes, func(c change) bool { return slices.Contains(c.file.Then, state.Reboot) })
	if after, err = e.commitRevert(ctx, j, after, changes, result.Settings); err != nil {
		return nil, err
	}
	return result, e.run(ctx, after, result.Steps)
}

// UnknownError names a file that bootstrap has not changed.
type UnknownError struct{ Path string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("bootstrap has not changed /%s; `kata-vfio-bootstrap status` lists what it has", e.Path)
}

// reversals returns the changes that bring files back, the last first.
func (e *Engine) reversals(j *Journal, result *Result, paths []string) ([]change, error) {
	var changes []change
	for _, entry := range slices.Backward(slices.Clone(j.Entries)) {
		if len(paths) > 0 && !slices.Contains(paths, entry.Path) {
			continue
		}
		found, err := e.Files.Look(entry.Path)
		if err != nil {
			return nil, err
		}
		switch {
		case found.Same(entry.Before):
			j.entry(entry.Path).After = entry.Before // somebody has done it already
		case found.Kind == disk.Absent:
			j.entry(entry.Path).After = entry.Before
			result.Kept = append(result.Kept, Kept{Path: entry.Path, Why: "somebody has removed it since; it stays removed"})
		case !found.Same(entry.After):
			result.Kept = append(result.Kept, Kept{Path: entry.Path, Why: "somebody has changed it since; take the change out, or the file from bootstrap's hands by restoring it yourself", Diff: e.since(&entry, found)})
		default:
			c, err := e.takeBack(&entry, found)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
			result.Changed = append(result.Changed, FilePlan{Path: entry.Path, Part: entry.Part, Why: entry.Why, Action: "take back", Diff: c.diff()})
		}
	}
	return changes, nil
}

// since is how a file differs from what bootstrap wrote.
func (e *Engine) since(entry *Entry, found disk.Found) string {
	written, err := e.kept(entry.After)
	if err != nil {
		return err.Error()
	}
	return diff.Unified("written/"+entry.Path, "found/"+entry.Path, text(entry.After, written), text(found.Image, found.Content))
}

// resettable returns the running settings that are still as they were written: what
// somebody has set since is theirs.
func (e *Engine) resettable(j *Journal) []SettingPlan {
	var settings []SettingPlan
	for _, w := range j.Settings {
		now, err := e.setting(w.Path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && now != w.After || e.Attributes == nil {
			continue
		}
		settings = append(settings, SettingPlan{Setting: state.Setting{Part: w.Part, Path: w.Path, Value: unsetValue(w.Before)}, Now: now, Status: ToDo})
	}
	return settings
}

// commitRevert is [Engine.commit] for the way back. Settings are brought back first and
// leave the journal with the files.
func (e *Engine) commitRevert(ctx context.Context, before, after *Journal, changes []change, settings []SettingPlan) (*Journal, error) {
	for _, s := range settings {
		if err := e.Attributes.Write(s.Path, []byte(s.Value)); err != nil {
			return nil, fmt.Errorf("bring /%s back to %q: %w", s.Path, s.Value, err)
		}
	}
	return e.commit(ctx, before, after, changes, nil)
}
