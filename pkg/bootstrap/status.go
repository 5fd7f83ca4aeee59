package bootstrap

import (
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/disk"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Report is what bootstrap has done to a node, and what has become of it.
type Report struct {
	Root    string    `json:"root"`
	Applied time.Time `json:"applied,omitzero"`
	// Blueprint is the text that was applied last; empty for the default.
	Blueprint  string           `json:"blueprint,omitempty"`
	Unfinished bool             `json:"unfinished,omitempty"`
	Files      []FileReport     `json:"files"`
	Settings   []Written        `json:"settings"`
	Pending    []state.FollowUp `json:"pending"`
	// Steps are the tools of what is pending.
	Steps  []Step `json:"steps"`
	Reboot bool   `json:"rebootPending,omitempty"`
}

// FileReport is one file of ours.
type FileReport struct {
	Path string    `json:"path"`
	Part string    `json:"part"`
	Why  string    `json:"why"`
	At   time.Time `json:"at"`
	// Was says what revert brings back: "absent", "file" or "link".
	Was   disk.Kind `json:"was"`
	Drift *Drift    `json:"drift,omitempty"`
	// Error is why it could not be looked at.
	Error string `json:"error,omitempty"`
}

// Status reads the journal and looks at its files. It changes nothing.
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
	r.Steps = e.steps(platform.Detect(&pristine{e.Tree, e, settled}, e.Live), j.Pending, nil)
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
