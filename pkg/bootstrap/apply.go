package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// RefusedError says why bootstrap does not change a node.
type RefusedError struct{ Problems []state.Problem }

func (e *RefusedError) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, fmt.Sprintf("%s; %s (%s)", p.Text, p.Fix, p.Code))
	}
	return "nothing was changed: " + strings.Join(texts, "\n")
}

// Result is the outcome of apply or revert.
type Result struct {
	// Changed are the files that changed, and Settings the running settings.
	Changed  []FilePlan    `json:"changed"`
	Settings []SettingPlan `json:"settings"`
	// Steps are the tools that the changes need. The operator runs those that
	// bootstrap does not run.
	Steps []Step `json:"steps"`
	// Reboot is true if some changes need a reboot to take effect.
	Reboot bool `json:"rebootPending"`
	// Kept are files that revert did not change, each with the reason.
	Kept []Kept `json:"kept,omitempty"`
	// Plan is the plan of the node afterwards.
	Plan *Plan `json:"-"`
}

// Apply configures the node according to the blueprint. If a file or a running setting can't be written, Apply undoes all
// changes, and the journal keeps a setting that may still take effect ([StuckError]). If it fails later, for example in a
// tool, the changes stay, and the next apply runs the tools that did not run. Text is the blueprint as it was written, for
// [Engine.Status]. A [RefusedError] lists the problems that prevent the changes.
func (e *Engine) Apply(ctx context.Context, b *blueprint.Blueprint, text string) (*Result, error) {
	var result *Result
	err := e.locked(ctx, func() error {
		j, err := e.begin()
		if err != nil {
			return err
		}
		result, err = e.apply(ctx, b, text, j)
		return err
	})
	return result, err
}

// begin completes an interrupted run and returns the journal. It removes the record of the last verify, which is outdated.
func (e *Engine) begin() (*Journal, error) {
	if err := errors.Join(e.Files.Sweep(journalFile), e.Files.Remove(state.RecordFile)); err != nil {
		return nil, err
	}
	j, err := e.load()
	if err != nil {
		return nil, err
	}
	return e.resume(j)
}

func (e *Engine) apply(ctx context.Context, b *blueprint.Blueprint, text string, j *Journal) (*Result, error) {
	p, err := e.plan(ctx, b, j)
	if err != nil {
		return nil, err
	}
	if refused := p.refused(); len(refused) > 0 {
		return &Result{Plan: p}, &RefusedError{refused}
	}
	after := j.clone()
	after.Awaits, after.Pending = p.awaited(j, e.bootID()), p.pending
	todo := slices.DeleteFunc(slices.Clone(p.Settings), func(s SettingPlan) bool { return s.Status != ToDo || s.AtBoot })
	result := &Result{Changed: []FilePlan{}, Settings: []SettingPlan{}, Steps: p.Steps, Plan: p, Reboot: p.Reboot}
	for _, f := range p.Files {
		if f.Status == ToDo {
			f.Status = Done
			result.Changed = append(result.Changed, f)
		}
	}
	for _, s := range todo {
		s.Status = Done
		result.Settings = append(result.Settings, s)
	}
	if !p.toDo() {
		return result, e.note(j, after, text)
	}
	after.Applied, after.Blueprint = e.Now(), text
	for _, s := range todo {
		// Recorded before they are written: a crash in between must not lose the former values.
		after.Settings = record(after.Settings, Written{Path: s.Path, Part: s.Part, At: e.Now(), Before: s.Now, After: s.Value, Began: e.bootID()})
	}
	if after, err = e.commit(ctx, &work{before: j, after: after, changes: p.changes, settings: todo}); err != nil {
		return nil, err
	}
	if err := e.readBack(after, todo); err != nil {
		return result, err
	}
	if err := e.run(ctx, after, p.Steps, "apply"); err != nil {
		return result, err
	}
	return result, e.verify(ctx, b, after, result)
}

// note saves the text of a blueprint that requires no change, so that the next run compares with it and knows which changes
// wait for a reboot.
func (e *Engine) note(before, after *Journal, text string) error {
	if text == before.Blueprint && maps.Equal(after.Awaits, before.Awaits) {
		return nil
	}
	if text != before.Blueprint {
		after.Applied, after.Blueprint = e.Now(), text
	}
	return e.save(after)
}

// readBack records in the journal the values that settings really have, such as fewer huge pages than requested, so that a later
// revert recognizes them as bootstrap's.
func (e *Engine) readBack(j *Journal, settings []SettingPlan) error {
	former := j.Settings
	for _, s := range settings {
		now, _, err := e.setting(s.Path)
		if err != nil || now == s.Value {
			continue // the inspection that follows reports it
		}
		j.Settings = record(j.Settings, Written{Path: s.Path, At: e.Now(), After: now})
	}
	if slices.Equal(former, j.Settings) {
		return nil
	}
	return e.save(j)
}

// verify inspects the node again. It returns an error for each change that had no effect.
func (e *Engine) verify(ctx context.Context, b *blueprint.Blueprint, j *Journal, result *Result) error {
	p, err := e.plan(ctx, b, j)
	if err != nil {
		return fmt.Errorf("inspect the node after apply: %w", err)
	}
	result.Plan, result.Reboot = p, p.Reboot
	var errs []error
	for _, f := range p.Files {
		if f.Status == ToDo {
			errs = append(errs, fmt.Errorf("/%s was written, but now differs from the blueprint: another program changes it", f.Path))
		}
	}
	for _, s := range p.Settings {
		if s.Status == ToDo && !s.AtBoot {
			errs = append(errs, fmt.Errorf("/%s was set to %s, but is %q; the files match, so a reboot may set it", s.Path, s.Value, s.Now))
		}
	}
	return errors.Join(errs...)
}

// work has the changes of one run, and the journal before and during it.
type work struct {
	before, after *Journal
	changes       []change
	settings      []SettingPlan
	// forgets makes the journal drop all settings once they are written back. A revert of all files sets it.
	forgets bool
}

// commit makes the changes and returns the journal that records them. It first writes the former contents and the intent to
// disk, and then the new contents beside the files. Then it replaces each file, and writes running settings last. If a file or
// a setting can't be written, it undoes everything, except for the settings whose writes the kernel does not answer.
func (e *Engine) commit(ctx context.Context, w *work) (*Journal, error) {
	for i := range w.changes {
		if err := e.intend(w.after, &w.changes[i]); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	if err := e.save(w.after); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	// The journal of the outcome is staged together with the files, so that a full disk is noticed before the first of them
	// is replaced.
	done, dirs := w.after.concluded()
	w.answered(done)
	if w.forgets {
		done.Settings = nil
	}
	var left []SettingPlan
	conclude, err := e.stageAll(w.changes, done)
	if err == nil {
		left, err = e.doAll(ctx, w)
	}
	if err != nil {
		return nil, e.revertAll(w, left, err)
	}
	return done, errors.Join(e.removeDirs(dirs), conclude())
}

// doAll makes the staged changes and writes the settings. An error undoes the settings, except for those that are left.
func (e *Engine) doAll(ctx context.Context, w *work) (left []SettingPlan, err error) {
	for i := range w.changes {
		// Between two files, a canceled run can still be undone like a failed one.
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := e.do(&w.changes[i]); err != nil {
			return nil, err
		}
	}
	for i, s := range w.settings {
		if err := e.Attributes.Write(s.Path, []byte(s.Value)); err != nil {
			err = fmt.Errorf("write %s to /%s: %w", strings.TrimSpace(s.Value), s.Path, err)
			left, failed := e.unset(w.settings[:i])
			if isStuck(err) {
				left = append(left, s)
			}
			return left, errors.Join(err, failed)
		}
	}
	return nil, nil
}

// stageAll stages the changes, and the journal that records them as made.
func (e *Engine) stageAll(changes []change, done *Journal) (conclude func() error, err error) {
	for i := range changes {
		if err := e.stage(&changes[i]); err != nil {
			return nil, err
		}
	}
	return e.stageJournal(done)
}

// intend records a change in the journal before it is made.
func (e *Engine) intend(j *Journal, c *change) error {
	for _, version := range []struct {
		image   state.Image
		content []byte
	}{{c.was.Image, c.was.Content}, {c.to, c.content}} {
		if version.image.Kind == state.RegularFile {
			if err := e.keep(version.content); err != nil {
				return err
			}
		}
	}
	entry := j.entry(c.file.Path)
	if entry == nil {
		before := c.was.Image
		if c.back {
			before = c.to // a copy of bootstrap's arguments is not to be restored
		}
		// Include directories that were made for other files: the last file to be reverted removes them.
		j.Entries = append(j.Entries, Entry{Path: c.file.Path, Before: before, After: c.was.Image, Dirs: append(e.madeFor(j, c.file.Path), c.dirs...)})
		entry = &j.Entries[len(j.Entries)-1]
	}
	if !c.was.Same(entry.After) && entry.Before.Kind != state.Absent {
		// The operator edited the file after bootstrap wrote it. Revert then restores the edited version, without
		// bootstrap's additions.
		before, err := e.theirs(entry, c.was)
		if err != nil {
			return err
		}
		entry.Before = before
	}
	entry.Part, entry.Why, entry.At = c.file.Part, c.file.Why, e.Now()
	if !c.back {
		entry.Then = c.file.Then
	}
	entry.Was, entry.After = &c.was.Image, c.to
	e.pend(j, c)
	return nil
}

// pend records the follow-ups of a change.
func (e *Engine) pend(j *Journal, c *change) {
	if slices.Contains(c.file.Then, state.Reboot) {
		j.Reboot = e.bootID()
	}
	// A reboot is left to the operator, and an image has no running daemons to notify.
	j.Pending = slices.DeleteFunc(follow(j.Pending, c), func(f state.FollowUp) bool { return f == state.Reboot || !e.Live && !ofImage(f) })
}

// theirs returns the operator's edited version of their own file without bootstrap's additions, and stores it.
func (e *Engine) theirs(entry *Entry, found state.Found) (state.Image, error) {
	content, err := e.withdrawn(entry, found)
	if err != nil {
		return state.Image{}, err
	}
	edited := found.Image
	if edited.Kind != state.RegularFile {
		return edited, nil
	}
	edited.Sum = state.Sum(content)
	return edited, e.keep(content)
}

// withdrawn returns a changed file's content without bootstrap's additions.
func (e *Engine) withdrawn(entry *Entry, found state.Found) ([]byte, error) {
	if entry.Part != host.KernelPart || entry.Before.Kind != state.RegularFile || entry.After.Kind != state.RegularFile {
		return found.Content, nil
	}
	before, err := e.kept(entry.Before)
	if err != nil {
		return nil, err
	}
	after, err := e.kept(entry.After)
	return []byte(host.Withdraw(string(before), string(after), string(found.Content))), err
}

// madeFor returns the directories above a path that were made for other files.
func (e *Engine) madeFor(j *Journal, name string) []string {
	var dirs []string
	for _, entry := range j.Entries {
		for _, dir := range entry.Dirs {
			if strings.HasPrefix(name, dir+"/") && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// record records a setting. If it was changed before, its first value is kept.
func record(all []Written, w Written) []Written {
	all = slices.Clone(all)
	for i := range all {
		if all[i].Path == w.Path {
			all[i].After, all[i].At, all[i].Began = w.After, w.At, w.Began
			return all
		}
	}
	return append(all, w)
}

// revertAll undoes changes, made or staged, after an error. The journal keeps the settings that are left. If that fails too,
// the journal keeps the intent, and the next run completes it.
func (e *Engine) revertAll(w *work, left []SettingPlan, cause error) error {
	// In reverse, so that a directory that was made for two files is empty when it is removed.
	for i := range slices.Backward(w.changes) {
		if err := e.undo(&w.changes[i]); err != nil {
			return fmt.Errorf("%w; the changes could not be undone: %w; fix that, then run apply or revert", cause, err)
		}
	}
	cause = fmt.Errorf("%w; the changes are undone%s", cause, except(left))
	if err := errors.Join(e.Files.Sweep(journalFile), e.save(w.undone(left))); err != nil {
		return fmt.Errorf("%w, but: %w", cause, err)
	}
	return cause
}

// unset restores running settings. It returns those that it could not restore, and why.
func (e *Engine) unset(settings []SettingPlan) (left []SettingPlan, err error) {
	var errs []error
	for _, s := range slices.Backward(settings) {
		if err := e.Attributes.Write(s.Path, []byte(unsetValue(s.Now))); err != nil {
			left, errs = append(left, s), append(errs, fmt.Errorf("restore /%s: %w", s.Path, err))
		}
	}
	return left, errors.Join(errs...)
}

// unsetValue returns the text to write so that a file shows the value: an unset driver_override shows "(null)", and an empty
// line unsets it.
func unsetValue(shown string) string {
	if shown == "(null)" {
		return "\n"
	}
	return shown
}
