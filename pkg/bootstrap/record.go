package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Record saves the findings of a plan on the node, as [state.RecordFile]. The plugin serves them as metrics. You can repeat
// it; earlier findings keep their time. Apply and Revert remove the record, because it is outdated then. If another
// process applied meanwhile, the error is [errOutdated].
func (e *Engine) Record(ctx context.Context, p *Plan) error {
	return e.locked(ctx, func() error {
		j, err := e.load()
		if err != nil {
			return err
		}
		if j.sum != p.journal {
			return errOutdated
		}
		return e.leave(p.Blueprint, string(p.Outcome()), p.differences(), p.kata())
	})
}

// errOutdated says that the node was changed while it was inspected.
var errOutdated = errors.New("the node was changed while it was inspected; run verify again")

// RecordUnknown records on the node that it could not be inspected, so that an earlier record is not taken as current.
func (e *Engine) RecordUnknown(ctx context.Context, cause error) error {
	return e.locked(ctx, func() error {
		return e.leave("", state.Unknown, []state.Difference{{Part: "bootstrap", What: "problem", Why: cause.Error()}}, "")
	})
}

// leave writes the record durably, and removes the remains of an interrupted write.
func (e *Engine) leave(blueprint, outcome string, differences []state.Difference, kata string) error {
	found, err := e.Files.Look(state.RecordFile)
	if err != nil {
		return fmt.Errorf("read the earlier record: %w", err)
	}
	former, err := state.ParseRecord(found.Content)
	if err != nil {
		former = nil // a damaged record is replaced
	}
	record := state.NewRecord(e.Now(), blueprint, outcome, differences, former)
	record.Kata = kata
	text, err := record.Encode()
	if err != nil {
		return err
	}
	if err := errors.Join(e.makeStateDir(), e.Files.Sweep(state.RecordFile), e.Files.Write(state.RecordFile, text, state.NewImage(0o600))); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

// kata returns the version of Kata according to the node's files, or "" if no file has it.
func (p *Plan) kata() string {
	for _, f := range p.Facts {
		if f.Part == "kata" && f.Name == "version" && f.Source != "" {
			return f.Value
		}
	}
	return ""
}

// differences are the differences from the blueprint, the most severe first.
func (p *Plan) differences() []state.Difference {
	all := []state.Difference{}
	for _, problem := range p.refused() {
		all = append(all, state.Difference{Part: problem.Part, Path: rooted(problem.Path), What: "problem", Code: problem.Code, Why: problem.Text})
	}
	for _, problem := range p.Problems {
		if problem.AtBoot {
			all = append(all, state.Difference{Part: problem.Part, Code: problem.Code, What: map[bool]string{true: "problem", false: "reboot"}[p.NotBrought], Why: problem.Text})
		}
	}
	for i := range p.Files {
		if f := &p.Files[i]; f.Status != Right {
			all = append(all, f.difference())
		}
	}
	for i := range p.Settings {
		if s := &p.Settings[i]; s.Status != Right {
			all = append(all, s.difference())
		}
	}
	if len(all) == 0 {
		all = p.rest()
	}
	return all
}

// rest returns the remaining work after every file and setting matches.
func (p *Plan) rest() []state.Difference {
	all := []state.Difference{}
	if p.Unfinished {
		all = append(all, state.Difference{Part: "bootstrap", What: "missing", Why: "an earlier run was interrupted"})
	}
	for _, s := range p.Steps {
		if s.Due && s.Runs {
			all = append(all, state.Difference{Part: "bootstrap", What: "missing", Why: "still to run: " + cmp.Or(strings.Join(s.Commands, "; "), string(s.FollowUp))})
		}
	}
	if p.Reboot {
		all = append(all, state.Difference{Part: "bootstrap", What: "reboot", Why: "the files need a reboot to take effect"})
	}
	return all
}

func (f *FilePlan) difference() state.Difference {
	d := state.Difference{Part: f.Part, Path: rooted(f.Path), What: "missing", Why: f.Why}
	if f.Drift != nil {
		d.What, d.Since = f.Drift.What, f.Drift.Since
	}
	return d
}

func (s *SettingPlan) difference() state.Difference {
	d := state.Difference{Part: s.Part, Path: rooted(s.Path), What: "setting", Why: fmt.Sprintf("want %s, is %s", s.Value, s.Now)}
	if s.Path == kernelargs.Running {
		d.Why = "lacks " + s.Value // the whole line would be long
	}
	if s.Status == RebootPending {
		d.What = "reboot"
	}
	return d
}

// rooted returns a path below the root with a leading slash.
func rooted(name string) string {
	if name == "" {
		return ""
	}
	return "/" + name
}

// Report lists bootstrap's changes on a node, and their current state.
type Report struct {
	Root    string    `json:"root"`
	Applied time.Time `json:"applied,omitzero"`
	// Blueprint is the text that was last applied, or empty for the default.
	Blueprint  string           `json:"blueprint,omitempty"`
	Unfinished bool             `json:"unfinished,omitempty"`
	Files      []FileReport     `json:"files"`
	Settings   []Written        `json:"settings"`
	Pending    []state.FollowUp `json:"pending"`
	// Steps are the tools that still have to run.
	Steps  []Step `json:"steps"`
	Reboot bool   `json:"rebootPending,omitempty"`
}

// FileReport is one file that bootstrap wrote.
type FileReport struct {
	Path string    `json:"path"`
	Part string    `json:"part"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
	// Was is the kind of version that revert restores: "absent", "file" or "link".
	Was   state.Kind `json:"was"`
	Drift *Drift     `json:"drift,omitempty"`
	// Error is the reason if the file could not be read.
	Error string `json:"error,omitempty"`
}

// Status reads the journal and its files. It changes nothing.
func (e *Engine) Status() (*Report, error) {
	j, err := e.load()
	if err != nil {
		return nil, err
	}
	r := &Report{
		Root: e.Root, Applied: j.Applied, Blueprint: j.Blueprint, Unfinished: j.unfinished(), Files: []FileReport{},
		Settings: append([]Written{}, j.Settings...), Pending: append([]state.FollowUp{}, j.Pending...), Reboot: j.Reboot != "" && j.Reboot == e.bootID(),
	}
	settled, err := e.resumed(j)
	if err != nil {
		return nil, err
	}
	r.Steps = e.steps(host.Detect(&pristine{e.Tree, e, settled}, e.Live), j.Pending, nil)
	for i := range settled.Entries {
		entry := &settled.Entries[i]
		file := FileReport{Path: entry.Path, Part: entry.Part, Why: entry.Why, At: entry.At, Was: entry.Before.Kind}
		if found, err := e.Files.Look(entry.Path); err != nil {
			file.Error = err.Error()
		} else {
			file.Drift = e.drifted(entry, found)
		}
		r.Files = append(r.Files, file)
	}
	return r, nil
}
