package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Plan compares the node with the blueprint and changes nothing.
func (e *Engine) Plan(ctx context.Context, b *blueprint.Blueprint) (*Plan, error) {
	j, err := e.load()
	if err != nil {
		return nil, err
	}
	settled, err := e.resumed(j)
	if err != nil {
		return nil, err
	}
	p, err := e.plan(ctx, b, settled)
	if err == nil {
		p.Unfinished, p.journal = j.unfinished(), j.sum
	}
	return p, err
}

func (e *Engine) plan(ctx context.Context, b *blueprint.Blueprint, j *Journal) (*Plan, error) {
	tree := &pristine{e.Tree, e, j}
	p := &Plan{
		Root: e.Root, Blueprint: b.Name, Applied: j.Applied, Files: []FilePlan{}, Settings: []SettingPlan{},
		platform: host.Detect(tree, e.Live), passthrough: b.Kernel.IOMMU == blueprint.IOMMUPassthrough,
	}
	wanted, err := e.wanted(ctx, tree, b, p.platform)
	if err != nil {
		return nil, err
	}
	p.writeNothing(&wanted, host.Arguments(b, p.platform))
	lacking, loadable := host.Modules(wanted.Modules, p.platform)
	p.Facts = slices.Concat(p.platform.Facts(), wanted.Facts, loadable)
	if e.Chart != "" {
		p.Facts = append(p.Facts, state.Fact{Part: "chart", Name: "version", Value: e.Chart, Source: "--chart-version"})
	}
	p.Problems = append([]state.Problem{}, slices.Concat(p.platform.Denied(), wanted.Problems, lacking, host.Pins(b, p.platform, p.Facts))...)
	for _, f := range wanted.Files {
		if err := e.planFile(p, j, f); err != nil {
			return nil, err
		}
	}
	if err := e.planTakeBack(p, j, wanted.Files); err != nil {
		return nil, err
	}
	p.pending = forward(j.Pending, wanted.Files)
	p.Steps = e.steps(p.platform, p.pending, p.changes)
	for _, s := range wanted.Settings {
		e.planSetting(p, j, s)
	}
	e.planBoot(p, j)
	// The boot in which the files were changed is still the running one, so they are not in effect.
	if j.Reboot != "" && j.Reboot == e.bootID() && len(p.changes) == 0 {
		p.Reboot = true
	}
	return p, nil
}

// wanted joins the requirements of the parts.
func (e *Engine) wanted(ctx context.Context, tree state.Tree, b *blueprint.Blueprint, p *host.Platform) (state.Wanted, error) {
	var all state.Wanted
	b, inUse := e.keepInUse(ctx, b)
	b, all.Problems = host.PlaceHugePages(tree, b, p)
	all.Problems = append(inUse, all.Problems...)
	for _, part := range e.Parts {
		w, err := part(tree, b, p)
		if err != nil {
			return all, err
		}
		all.Files = append(all.Files, w.Files...)
		all.Settings = append(all.Settings, w.Settings...)
		all.Problems = append(all.Problems, w.Problems...)
		all.Facts = append(all.Facts, w.Facts...)
		all.Modules = append(all.Modules, w.Modules...)
	}
	slices.SortStableFunc(all.Files, func(a, b state.File) int { return strings.Compare(a.Path, b.Path) })
	for i := 1; i < len(all.Files); i++ {
		if a, b := all.Files[i-1], all.Files[i]; a.Path == b.Path {
			return all, fmt.Errorf("%s and %s both write /%s: this is a bug in kata-vfio-bootstrap", a.Part, b.Part, a.Path)
		}
	}
	return all, nil
}

func (e *Engine) planFile(p *Plan, j *Journal, f state.File) error {
	found, err := e.Files.Look(f.Path)
	if err != nil {
		p.Problems = append(p.Problems, state.Problem{Part: f.Part, Code: rule.FileUnreadable, Fatal: true, Path: f.Path, Text: err.Error(), Fix: "fix the error, then run bootstrap again"})
		return nil
	}
	c := newChange(f, found)
	plan := FilePlan{Path: f.Path, Part: f.Part, Why: f.Why, Status: Right, Drift: e.drifted(j.entry(f.Path), found)}
	// A boot loader file may have the words in another order, as the distribution's tools write them (see asWritten).
	asWanted := !c.needed() || j.entry(f.Path) != nil && f.Part == host.KernelPart && host.Says(string(found.Content), string(c.content))
	if !asWanted {
		plan.Status, plan.Action, plan.Diff = ToDo, c.action(), c.diff()
		if err := e.admit(p, &c); err != nil {
			return err
		}
	}
	p.Files = append(p.Files, plan)
	return nil
}

// admit accepts a change, or records the problem that prevents it.
func (e *Engine) admit(p *Plan, c *change) error {
	if problem := e.obstacle(c); problem != nil {
		p.Problems = append(p.Problems, *problem)
		return nil
	}
	var err error
	if c.to.Kind != state.Absent {
		c.dirs, err = e.Files.Missing(c.file.Path)
	}
	p.changes = append(p.changes, *c)
	return err
}

// planTakeBack reverts files that were made for a former blueprint. A file that was changed since is kept.
func (e *Engine) planTakeBack(p *Plan, j *Journal, wanted []state.File) error {
	for i := range j.Entries {
		entry := &j.Entries[i]
		// A part that refuses may have left out files that it otherwise requires. Those are not obsolete.
		if slices.ContainsFunc(wanted, func(f state.File) bool { return f.Path == entry.Path }) || len(p.refused()) > 0 {
			continue
		}
		found, err := e.Files.Look(entry.Path)
		if err != nil {
			return err
		}
		if !e.asWritten(entry, found) {
			continue
		}
		c, err := e.revertEntry(entry, found)
		if err != nil {
			return err
		}
		p.changes = append(p.changes, c)
		p.Files = append(p.Files, FilePlan{
			Path: entry.Path, Part: entry.Part, Why: "the blueprint no longer needs it", Status: ToDo, Action: "take back", Diff: c.diff(),
		})
	}
	return nil
}

// asWritten reports whether a file is as bootstrap wrote it. The distribution's tool may have regenerated a boot
// loader's file: if systemd-boot starts Debian, update-initramfs runs kernel-install, which writes the kernel's entry
// from the words in etc/kernel/cmdline, in another order than bootstrap. GRUB and kernels' packages write other variables
// of its environment.
func (e *Engine) asWritten(entry *Entry, found state.Found) bool {
	if found.Same(entry.After) {
		return true
	}
	if entry.Part != host.KernelPart || entry.After.Kind != state.RegularFile || found.Kind != state.RegularFile {
		return false
	}
	written, err := e.kept(entry.After)
	return err == nil && (host.Says(string(found.Content), string(written)) || host.Holds(string(found.Content), string(written)))
}

// drifted returns how a file of bootstrap was changed since it was written, or nil.
func (e *Engine) drifted(entry *Entry, found state.Found) *Drift {
	switch {
	case entry == nil || e.asWritten(entry, found):
		return nil
	case found.Kind == state.Absent:
		return &Drift{What: "removed", Written: entry.At}
	}
	return &Drift{What: "changed", Written: entry.At, Since: found.ModTime}
}

func (e *Engine) planSetting(p *Plan, j *Journal, s state.Setting) {
	now, locked, err := e.setting(s.Path)
	if locked {
		p.Problems = append(p.Problems, state.LockedProblem(s.Part, s.Path))
		return
	}
	// A module that is not loaded has no parameters. Its options take effect when it is loaded.
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		p.Problems = append(p.Problems, state.Problem{Part: s.Part, Code: rule.FileUnreadable, Fatal: true, Path: s.Path, Text: err.Error(), Fix: "run bootstrap as root"})
		return
	}
	plan := SettingPlan{Setting: s, Now: now, Status: Right}
	right := now == s.Value
	if s.Path == kernelargs.Running {
		right = kernelargs.Has(now, s.Value)
	}
	switch {
	case right:
	case s.AtBoot:
		plan.Status = e.await(p, j, s.Path+"="+s.Value)
	default:
		plan.Status = ToDo
	}
	p.Settings = append(p.Settings, plan)
}

// setting returns the value in a file of /proc or /sys. Locked says that it is out of reach, with an error.
func (e *Engine) setting(name string) (value string, locked bool, err error) {
	data, locked, err := state.ReadAttribute(e.Tree, name, 1<<16)
	return strings.TrimSpace(string(data)), locked, err
}

// await returns the status of a missing setting that only a boot can set: files have to change first, the next boot
// sets it, or an earlier apply left it to a boot that did not set it.
func (e *Engine) await(p *Plan, j *Journal, key string) Status {
	p.awaits = append(p.awaits, key)
	since, left := j.Awaits[key]
	switch {
	case p.diskToDo():
		return ToDo
	case left && since != e.bootID():
		p.NotBrought = true
		return NotBrought
	}
	p.Reboot = true
	return RebootPending
}

// diskToDo reports whether changes or steps are due before a boot.
func (p *Plan) diskToDo() bool {
	return len(p.changes) > 0 || slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Due })
}

// awaited returns the settings that take effect with the next boot after the plan is applied. A setting that already waits
// for a boot keeps its entry, unless changes are due now.
func (p *Plan) awaited(j *Journal, bootID string) map[string]string {
	all := map[string]string{}
	for _, key := range p.awaits {
		since, left := j.Awaits[key]
		if !left || p.diskToDo() {
			since = bootID
		}
		all[key] = since
	}
	return all
}

// planBoot judges problems of the running kernel, and says what to do if a boot did not have the expected effect.
func (e *Engine) planBoot(p *Plan, j *Journal) {
	for _, problem := range p.Problems {
		if problem.AtBoot {
			e.await(p, j, problem.Text)
		}
	}
	var words []string
	for _, s := range p.Settings {
		switch {
		case s.Status != NotBrought:
		case s.Path == kernelargs.Running:
			words = append(words, s.Value)
		default:
			p.Problems = append(p.Problems, state.Problem{
				Part: s.Part, Code: rule.RebootWithoutEffect, Path: s.Path, Text: fmt.Sprintf("/%s is %s, but must be %s; the reboot after apply did not change it", s.Path, s.Now, s.Value),
				Fix: "look for the reason in `dmesg` and in the limits of the device's firmware; if the value was changed after the boot, reboot",
			})
		}
	}
	if len(words) > 0 {
		p.Problems = append(p.Problems, state.Problem{
			Part: host.KernelPart, Code: rule.RebootWithoutEffect, Path: kernelargs.Running,
			Text: fmt.Sprintf("the node was rebooted after apply, but its kernel was started without %s", strings.Join(words, " ")),
			Fix: fmt.Sprintf("bootstrap configured %s. Find out what really starts the node (another boot loader, network boot, a hypervisor, "+
				"a unified kernel image), add the arguments there, and reboot", p.platform.Loader.Kind),
		})
	}
}
