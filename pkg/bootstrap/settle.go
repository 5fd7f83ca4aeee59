package bootstrap

import (
	"errors"
	"slices"
)

// unfinished reports whether a process ended in the middle of its changes.
func (j *Journal) unfinished() bool {
	return slices.ContainsFunc(j.Entries, func(e Entry) bool { return e.Was != nil })
}

// resumed returns the journal with what a cut-off process had begun found out: each
// write has happened or not, since files are replaced at once. It changes nothing.
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
			entry.After = *entry.Was // it has not happened
		}
		entry.Was = nil
	}
	return j, errors.Join(errs...)
}

// resume brings the disk in order after a cut-off process and returns the journal:
// temporary files go, and so do directories for files that were never made.
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

// concluded returns the journal once its intents are carried out: files that are as
// they were before bootstrap are no longer in it. Dirs are directories that were made
// for those alone, innermost first.
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
		dirs = slices.DeleteFunc(dirs, func(d string) bool { return slices.Contains(after.Entries[i].Dirs, d) })
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	slices.Reverse(dirs)
	return after, dirs
}

// removeDirs removes directories that are empty.
func (e *Engine) removeDirs(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, e.Files.RemoveDir(dir))
	}
	return errors.Join(errs...)
}
