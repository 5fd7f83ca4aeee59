package bootstrap

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/platform"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Status says how far a file or a setting is from what is wanted.
type Status string

// Statuses. RebootPending is right on disk, and only the next boot brings it; NotBrought is what a boot has not brought.
const (
	Right         Status = "right"
	ToDo          Status = "to do"
	RebootPending Status = "reboot pending"
	NotBrought    Status = "not brought by the boot"
)

// Plan is what a node is, what it should be, and what lies between.
type Plan struct {
	Root      string `json:"root"`
	Blueprint string `json:"blueprint,omitempty"`
	// Applied is when a blueprint was applied last.
	Applied time.Time `json:"applied,omitzero"`
	// Unfinished: a process was ended in the middle of its changes; the next apply
	// or revert puts that in order.
	Unfinished bool            `json:"unfinished,omitempty"`
	Files      []FilePlan      `json:"files"`
	Settings   []SettingPlan   `json:"settings"`
	Steps      []Step          `json:"steps"`
	Problems   []state.Problem `json:"problems"`
	Facts      []state.Fact    `json:"facts"`
	// Reboot: what is on disk is right and takes a reboot.
	Reboot bool `json:"rebootPending,omitempty"`
	// NotBrought: what is on disk is right, and a boot has not brought all of it. Another one would not either.
	NotBrought bool `json:"notBroughtByBoot,omitempty"`

	// journal is the sum of the journal that it goes by.
	journal string
	// pending is what has still to follow former changes.
	pending []state.FollowUp
	// awaits are the keys of what only a boot brings and is not there.
	awaits   []string
	changes  []change
	platform *platform.Platform
}

// FilePlan is one file.
type FilePlan struct {
	Path   string `json:"path"`
	Part   string `json:"part"`
	Why    string `json:"why"`
	Status Status `json:"status"`
	// Action is "create", "change" or "take back", empty for none. Take back
	// is of what no blueprint wants any more.
	Action string `json:"action,omitempty"`
	Diff   string `json:"diff,omitempty"`
	// Drift is there where somebody has changed the file since bootstrap wrote it.
	Drift *Drift `json:"drift,omitempty"`
}

// Drift is a change by somebody else.
type Drift struct {
	// What is "changed" or "removed".
	What string `json:"what"`
	// Written is when bootstrap wrote the file, Since the time of the file itself.
	Written time.Time `json:"written"`
	Since   time.Time `json:"since,omitzero"`
}

// SettingPlan is one running setting.
type SettingPlan struct {
	state.Setting
	Now    string `json:"now"`
	Status Status `json:"status"`
}

// refused returns the problems because of which nothing is changed.
func (p *Plan) refused() []state.Problem {
	var fatal []state.Problem
	for _, problem := range p.Problems {
		if problem.Fatal {
			fatal = append(fatal, problem)
		}
	}
	return fatal
}

// Outcome sums a plan up.
type Outcome string

// Outcomes, the gravest that holds.
const (
	Fit           Outcome = "fit"
	ChangesNeeded Outcome = "changes needed"
	RebootNeeded  Outcome = "reboot needed"
	Impossible    Outcome = "can't be made fit"
)

// Outcome returns the gravest of what the plan has found.
func (p *Plan) Outcome() Outcome {
	switch {
	case len(p.refused()) > 0:
		return Impossible
	case p.Unfinished, p.toDo():
		return ChangesNeeded
	case p.NotBrought:
		return Impossible
	case p.Reboot:
		return RebootNeeded
	}
	return Fit
}

func (p *Plan) toDo() bool {
	return slices.ContainsFunc(p.Files, func(f FilePlan) bool { return f.Status == ToDo }) ||
		slices.ContainsFunc(p.Settings, func(s SettingPlan) bool { return s.Status == ToDo }) ||
		slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Due && s.Runs })
}
