package fleet

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Level is the obligation of a requirement.
type Level string

// Levels of the profile.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
)

// Result says whether the cluster meets a requirement.
type Result string

// Results.
const (
	// Shown: the objects of the cluster show that the cluster meets the requirement.
	Shown Result = "shown"
	// NotShown: the objects of the cluster do not show that. Reason says why, and Fix what to do.
	NotShown Result = "not shown"
	// NotOurs: another part of the platform, which Provider names, has to meet the requirement.
	NotOurs Result = "not ours"
)

// ConformanceReport is a cluster's evidence for a profile. Its JSON form is stable: names are added, never changed.
type ConformanceReport struct {
	Profile Profile `json:"profile"`
	// Kubernetes is the API server's version, "v1.37.2".
	Kubernetes   string        `json:"kubernetes"`
	Requirements []Requirement `json:"requirements"`
}

// Requirement is one requirement of the profile, and the cluster's evidence for it.
type Requirement struct {
	// ID and Level are those of the profile.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	// Until is the last profile that has the requirement, if newer ones do not: "v1.35".
	Until  string `json:"until,omitempty"`
	Result Result `json:"result"`
	// Checked is the condition for the requirement to be shown.
	Checked string `json:"checked"`
	// Reason says why the requirement is not shown, and Fix what to do.
	Reason string `json:"reason,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Provider is the part of the platform that provides it, if that is not kata-vfio.
	Provider string `json:"provider,omitempty"`
	// Evidence has the observations: objects, counts, versions.
	Evidence []string `json:"evidence"`
	// Commands repeat the observation by hand.
	Commands []Command `json:"commands"`
}

// Command is a command line of a shell. Words in capitals stand for a name.
type Command struct {
	Command string `json:"command"`
	// Expected is the output. In a line, "..." stands for any text, and a line of "..." for any lines.
	Expected string `json:"expected"`
}

// requirement is a rule of the profile, and the function that judges a cluster by it.
type requirement struct {
	entry Requirement
	// since is the first profile that has the requirement, if older ones do not: "v1.37".
	since string
	// needs are the kinds of objects without which the answer is unknown.
	needs []string
	// judge returns the observation. It is nil for a requirement that another part of the platform has to meet.
	judge func(*ConformanceState) observation
}

// observation is the result of a judge. Without a reason the requirement is shown.
type observation struct {
	evidence    []string
	reason, fix string
}

// requirements returns the requirements of the newest profile, in its order, and after them those of older profiles only.
func requirements() []requirement {
	return slices.Concat(accelerators(), networking(), scheduling(), observability(), security(), operators(), former())
}

// check judges a cluster by a requirement.
type check = finding.Check[*ConformanceState, []finding.Finding]

// JudgeConformance judges the cluster by each requirement of a profile of Kubernetes AI conformance, and by those of older
// profiles. It certifies nothing: a platform submits this evidence together with the evidence of its other parts. It does no I/O:
// the caller lists the objects and prints the result. Texts of the cluster are unchanged, and may come from anyone.
func JudgeConformance(s *ConformanceState, p Profile) *ConformanceReport {
	asked := slices.DeleteFunc(requirements(), func(r requirement) bool { return !p.has(r.since) })
	var checks []check
	for i := range asked {
		if asked[i].judge != nil {
			checks = append(checks, asked[i].check())
		}
	}
	found := finding.Run(s, s, checks, finding.Options{}).Findings
	r := &ConformanceReport{Profile: p, Kubernetes: s.Kubernetes, Requirements: []Requirement{}}
	for i := range asked {
		r.Requirements = append(r.Requirements, asked[i].answered(found))
	}
	return r
}

// check returns a check that turns the observation of judge into one finding.
func (r *requirement) check() check {
	return check{ID: r.entry.ID, Needs: r.needs, Judge: func(s *ConformanceState) []finding.Finding {
		o := r.judge(s)
		f := finding.Finding{State: finding.Pass, Text: o.reason, Remediation: o.fix}
		if o.reason != "" {
			f.State = finding.Fail
		}
		for _, observed := range o.evidence {
			f.Evidence = append(f.Evidence, rule.Evidence{Value: observed})
		}
		return []finding.Finding{f}
	}}
}

// answered returns the requirement with its result. Without a finding, the result is NotOurs.
func (r *requirement) answered(found []finding.Finding) Requirement {
	out := r.entry
	out.Evidence, out.Result = []string{}, NotOurs
	if out.Commands == nil {
		out.Commands = []Command{}
	}
	i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.ID == r.entry.ID })
	if i < 0 {
		return out
	}
	f := &found[i]
	out.Result, out.Reason, out.Fix = NotShown, f.Text, f.Remediation
	switch f.State {
	case finding.Pass:
		out.Result = Shown
	case finding.Unknown:
		out.Fix = "run the command as a user who may list them in all namespaces"
	default:
	}
	for _, e := range f.Evidence {
		out.Evidence = append(out.Evidence, e.Value)
	}
	return out
}

// Lacking returns the IDs of the profile's requirements of a level that are not shown.
func (r *ConformanceReport) Lacking(level Level) []string {
	var ids []string
	for i := range r.Requirements {
		if q := &r.Requirements[i]; q.Level == level && q.Until == "" && q.Result == NotShown {
			ids = append(ids, q.ID)
		}
	}
	return ids
}
