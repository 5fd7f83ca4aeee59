package bootstrap

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Status says whether a file or a setting matches the blueprint.
type Status string

// Statuses. RebootPending: the files are right, and the next boot puts them into effect. NotBrought: the files are
// right, but a boot did not put them into effect. Done: this run of apply or revert made the change.
const (
	Right         Status = "right"
	ToDo          Status = "to do"
	Done          Status = "done"
	RebootPending Status = "reboot pending"
	NotBrought    Status = "not brought by the boot"
)

// Plan is the current state of a node, the required state, and the difference.
type Plan struct {
	Root      string `json:"root"`
	Blueprint string `json:"blueprint,omitempty"`
	// Notice says what bootstrap can do on a system that keeps none of its files. It is empty on other systems.
	Notice string `json:"notice,omitempty"`
	// Talos is the configuration to apply to a node that runs Talos; nil on other systems.
	Talos *host.TalosConfig `json:"talos,omitempty"`
	// Applied is the time of the last apply.
	Applied time.Time `json:"applied,omitzero"`
	// Unfinished is true if a process ended in the middle of its changes. The next apply or revert completes or undoes them.
	Unfinished bool            `json:"unfinished,omitempty"`
	Files      []FilePlan      `json:"files"`
	Settings   []SettingPlan   `json:"settings"`
	Steps      []Step          `json:"steps"`
	Problems   []state.Problem `json:"problems"`
	Facts      []state.Fact    `json:"facts"`
	// Reboot is true if the files are right, and a reboot puts them into effect.
	Reboot bool `json:"rebootPending,omitempty"`
	// NotBrought is true if the files are right, but a boot did not put all of them into effect. Another boot would not either.
	NotBrought bool `json:"notBroughtByBoot,omitempty"`

	// journal is the checksum of the journal that the plan was made from.
	journal string
	// pending are the follow-ups of earlier changes that still have to run.
	pending []state.FollowUp
	// awaits are the keys of missing settings that only a boot can set.
	awaits   []string
	changes  []change
	platform *host.Platform
	// passthrough: the blueprint lets the kernel's own devices bypass the IOMMU.
	passthrough bool
}

// FilePlan is one file.
type FilePlan struct {
	Path   string `json:"path"`
	Part   string `json:"part"`
	Why    string `json:"why"`
	Status Status `json:"status"`
	// Action is "create", "change" or "take back", empty if there is none. Take back applies to files that the blueprint no
	// longer wants.
	Action string `json:"action,omitempty"`
	Diff   string `json:"diff,omitempty"`
	// Drift is set if the file was changed since bootstrap wrote it.
	Drift *Drift `json:"drift,omitempty"`
}

// Drift is a change that bootstrap did not make.
type Drift struct {
	// What is "changed" or "removed".
	What string `json:"what"`
	// Written is when bootstrap wrote the file. Since is the file's modification time.
	Written time.Time `json:"written"`
	Since   time.Time `json:"since,omitzero"`
}

// SettingPlan is one running setting.
type SettingPlan struct {
	state.Setting
	Now    string `json:"now"`
	Status Status `json:"status"`
}

// refused returns the problems that prevent all changes.
func (p *Plan) refused() []state.Problem {
	var fatal []state.Problem
	for _, problem := range p.Problems {
		if problem.Fatal {
			fatal = append(fatal, problem)
		}
	}
	return fatal
}

// Outcome summarizes a plan.
type Outcome string

// Outcomes. A plan has the most severe that applies.
const (
	Fit           Outcome = "fit"
	ChangesNeeded Outcome = "changes needed"
	RebootNeeded  Outcome = "reboot needed"
	Impossible    Outcome = "can't be made fit"
)

// Outcome returns the most severe outcome that applies.
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
