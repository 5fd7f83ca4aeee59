package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Check is a rule and how a cluster is judged by it.
type Check struct {
	finding.Rule
	// needs are the kinds of objects without which nothing can be said.
	needs []string
	judge func(*State) []finding.Finding
}

// Catalogue returns all checks that a cluster's API answers, by number.
func Catalogue() []Check {
	checks := slices.Concat(policyChecks(), podChecks(), accessChecks(), deviceChecks(), classChecks(), pluginChecks(), nodeChecks(), promiseChecks())
	slices.SortFunc(checks, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return checks
}

// Rules returns the catalogue's rules.
func Rules() []finding.Rule {
	checks := Catalogue()
	rules := make([]finding.Rule, len(checks))
	for i := range checks {
		rules[i] = checks[i].Rule
	}
	return rules
}

// Run asks all checks, adds what nodes' own audits found, and returns the finished
// report. The caller says what was audited. today is the day that waivers are held against, "2026-11-22".
func Run(s *State, profile finding.Profile, waivers []finding.Waiver, today string) *finding.Report {
	r := &finding.Report{Profile: profile.Name}
	for _, c := range Catalogue() {
		r.Findings = append(r.Findings, ask(s, &c, &profile)...)
	}
	finding.Apply(waivers, today, r.Findings)
	r.Findings = append(r.Findings, s.rolledUp(waivers, today)...)
	r.Summary.Devices = len(s.Devices)
	r.Finish()
	return r
}

// ask returns a check's findings, complete.
func ask(s *State, c *Check, profile *finding.Profile) []finding.Finding {
	severity := profile.Severity(&c.Rule)
	found := []finding.Finding{{State: finding.NotApplicable, Text: "the profile " + profile.Name + " does not ask for this"}}
	if severity == finding.Off {
		severity = c.Severity
	} else if missing := s.missing(c.needs); missing != "" {
		found = unknown(missing)
	} else {
		found = c.judge(s)
	}
	for i := range found {
		f := &found[i]
		f.ID, f.Title = c.ID, c.Title
		if f.Severity == "" {
			f.Severity = severity
		}
		if f.Verify == "" {
			f.Verify = c.Verify
		}
		f.Exposure = finding.Unexposed
		if f.State == finding.Pass || f.State == finding.NotApplicable {
			continue
		}
		if f.Remediation == "" {
			f.Remediation = c.Fix
		}
		f.Exposure = s.exposure(f.Tenants)
	}
	return found
}

// exposure of something that the tenants are concerned by; nobody named means all
// who use our devices.
func (s *State) exposure(tenants []string) finding.Exposure {
	if len(tenants) == 0 {
		for i := range s.Claims {
			if c := &s.Claims[i]; holds(c) && !slices.Contains(tenants, c.Namespace) {
				tenants = append(tenants, c.Namespace)
			}
		}
	}
	switch {
	case len(tenants) > 1:
		return finding.CrossTenant
	case len(tenants) == 1:
		return finding.Allocated
	case len(s.Devices) > 0:
		return finding.Published
	}
	return finding.Unexposed
}

// missing says which of the kinds could not be listed; empty where all could.
func (s *State) missing(kinds []string) string {
	for _, kind := range kinds {
		if why, ok := s.Missing[kind]; ok {
			return fmt.Sprintf("%s could not be listed: %s", kind, why)
		}
	}
	return ""
}

func pass(text string, seen ...finding.Evidence) []finding.Finding {
	return []finding.Finding{{State: finding.Pass, Text: text, Evidence: seen}}
}

func fail(object, text string, seen ...finding.Evidence) finding.Finding {
	return finding.Finding{State: finding.Fail, Object: object, Text: text, Evidence: seen}
}

func unknown(text string) []finding.Finding {
	return []finding.Finding{{State: finding.Unknown, Text: text}}
}

func notApplicable(text string) []finding.Finding {
	return []finding.Finding{{State: finding.NotApplicable, Text: text}}
}

// orPass returns the findings, or that all is in order.
func orPass(found []finding.Finding, text string, seen ...finding.Evidence) []finding.Finding {
	if len(found) > 0 {
		return found
	}
	return pass(text, seen...)
}

// saw is evidence from the API: "Pod t1/train spec.runtimeClassName".
func saw(object, value string) finding.Evidence {
	return finding.Evidence{Path: "api: " + object, Value: value, How: "api"}
}

// of marks findings as a tenant's.
func of(tenant string, f finding.Finding) finding.Finding {
	f.Tenants = []string{tenant}
	return f
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// severities, for short lists of rules.
const (
	critical = isolation.Critical
	high     = isolation.High
	medium   = isolation.Medium
	low      = isolation.Low
)
