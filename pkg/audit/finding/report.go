package finding

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Report is one audit of one node or cluster.
type Report struct {
	// Subject says what was audited.
	Subject Subject `json:"subject"`
	// Profile names the profile that it was judged by.
	Profile string `json:"profile"`
	// Basis says which functions count as those that tenants can get; nil where a
	// report is not of a node.
	Basis *Basis `json:"basis,omitempty"`
	// Exposures say what the exposures of the findings mean.
	Exposures map[Exposure]string `json:"exposures,omitempty"`
	// Findings are in the order of [Finding.Compare]. Every rule has one or more.
	Findings []Finding `json:"findings"`
	Summary  Summary   `json:"summary"`
	// NodeRecords are a node's own; nil where nobody asked for them.
	NodeRecords *NodeRecords `json:"books,omitempty"`
	// Kata is a node's own; nil where nobody asked for it.
	Kata *Kata `json:"kata,omitempty"`
}

// Subject identifies what was audited.
type Subject struct {
	// Kind is node, cluster or archive.
	Kind string `json:"kind"`
	// Name is the node's hostname or the cluster's API address.
	Name   string `json:"name,omitempty"`
	Root   string `json:"root,omitempty"`
	BootID string `json:"bootID,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	// Time is when the facts were read, RFC 3339 in UTC.
	Time string `json:"time"`
	// Version is the auditor's.
	Version string `json:"version"`
	// LeftOut says what an archive leaves out of the node that it is of.
	LeftOut string `json:"leftOut,omitempty"`
}

// Label returns what to call the subject where it has to be called something: its
// name, or else where it was read, or what it is.
func (s *Subject) Label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Root != "" && s.Root != "/":
		return s.Root
	}
	return s.Kind
}

// Summary counts a report's findings.
type Summary struct {
	// Verdict is fail, unknown or pass: the worst that the report holds.
	Verdict State `json:"verdict"`
	// States counts findings by state; all states are there.
	States map[State]int `json:"states"`
	// Failed counts those that fail by severity; all severities are there.
	Failed map[isolation.Severity]int `json:"failed"`
	// RuleStates counts rules, each once by the worst state that its findings have:
	// together they are Rules. FailedRules counts those that fail by the worst
	// severity at which they do.
	RuleStates  map[State]int              `json:"ruleStates"`
	FailedRules map[isolation.Severity]int `json:"failedRules"`
	// Rules is how many rules were looked at, and Devices how many functions.
	Rules   int `json:"rules"`
	Devices int `json:"devices"`
	// Tenants and Claims count those who hold functions concerned by a failure.
	Tenants int `json:"tenantsAffected"`
	Claims  int `json:"claimsAffected"`
}

// Severities returns all severities, worst first.
func Severities() []isolation.Severity {
	return []isolation.Severity{isolation.Critical, isolation.High, isolation.Medium, isolation.Low, isolation.Info}
}

// SeverityWords lists all severities for a help text or an error, worst first.
func SeverityWords() string {
	var words []string
	for _, s := range Severities() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// Finish sorts the findings, counts them, and makes missing lists empty ones, so
// that a machine finds none that is null. It may be repeated.
func (r *Report) Finish() {
	r.fillLists()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return a.Compare(&b) })
	s := Summary{
		Verdict: Pass, States: map[State]int{}, Failed: map[isolation.Severity]int{},
		RuleStates: map[State]int{}, FailedRules: map[isolation.Severity]int{}, Devices: r.Summary.Devices, Claims: r.Summary.Claims,
	}
	for _, state := range States() {
		s.States[state], s.RuleStates[state] = 0, 0
	}
	for _, severity := range Severities() {
		s.Failed[severity], s.FailedRules[severity] = 0, 0
	}
	rules, tenants := map[string]bool{}, map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !rules[f.ID] { // its worst, by the order of findings
			rules[f.ID] = true
			s.RuleStates[f.State]++
			if f.State == Fail {
				s.FailedRules[f.Severity]++
			}
		}
		s.States[f.State]++
		if f.State == Fail {
			s.Failed[f.Severity]++
			for _, t := range f.Tenants {
				tenants[t] = true
			}
		}
	}
	s.Rules, s.Tenants = len(rules), len(tenants)
	switch {
	case s.States[Fail] > 0:
		s.Verdict = Fail
	case s.States[Unknown]+s.States[Error] > 0:
		s.Verdict = Unknown
	}
	r.Summary = s
}

func (r *Report) fillLists() {
	r.Findings = list(r.Findings)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Devices, f.Tenants, f.Evidence = list(f.Devices), list(f.Tenants), list(f.Evidence)
	}
}

func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// FailsAt reports whether a rule fails with the severity or a worse one; an empty
// severity stands for any.
func (s *Summary) FailsAt(at isolation.Severity) bool {
	for severity, failed := range s.FailedRules {
		if failed > 0 && (at == "" || severity.Compare(at) <= 0) {
			return true
		}
	}
	return false
}

// Failing returns the findings that fail with the severity or a worse one, in
// order.
func (r *Report) Failing(at isolation.Severity) []Finding {
	var failing []Finding
	for _, f := range r.Findings {
		if f.State == Fail && f.Severity.Compare(at) <= 0 {
			failing = append(failing, f)
		}
	}
	return failing
}

// Undetermined reports whether a check could not tell.
func (r *Report) Undetermined() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.State == Unknown || f.State == Error })
}
