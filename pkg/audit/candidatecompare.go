package audit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// compare puts each check into one of the lists Repaired, Remaining, Open and Unknown. A check that fails neither before nor after
// the changes is in no list.
func (j *judge) compare(c *Candidate, plain *finding.Report, after []*finding.Report) {
	each := make([]map[string]finding.Finding, len(after))
	for i := range after {
		each[i] = worst(after[i])
	}
	for _, id := range ids(j.before) {
		now := j.before[id]
		compared := CandidateRule{ID: id, Title: now.Title, Severity: now.Severity, Now: now.State}
		switch state, same := outcome(each, id); {
		case len(each) > 1 && j.isReview(id) && (now.State == finding.Fail || state == finding.Fail):
			c.Open = append(c.Open, compared) // it summarizes the answers of other checks, of which some are open
		case state == finding.Fail && len(in(plain, id, finding.Fail)) == 0:
			compared.Severity = severest(each, id, now)
			c.Open = append(c.Open, compared) // it fails only because of assumptions of the scenarios, such as the numbers of groups
		case !same, undetermined(state) && !undetermined(now.State):
			compared.Severity = severest(each, id, now)
			c.Open = append(c.Open, compared)
		case state == finding.Fail:
			c.Remaining = append(c.Remaining, remaining(in(plain, id, finding.Fail), in(after[len(after)-1], id, finding.Fail))...)
		case undetermined(state):
			c.Unknown = append(c.Unknown, in(after[len(after)-1], id, state)...)
		case now.State == finding.Fail:
			c.Repaired = append(c.Repaired, compared)
		}
	}
	slices.SortStableFunc(c.Remaining, func(a, b finding.Finding) int { return a.Compare(&b) })
	slices.SortStableFunc(c.Unknown, func(a, b finding.Finding) int { return a.Compare(&b) })
	for _, rules := range [][]CandidateRule{c.Repaired, c.Open} {
		slices.SortStableFunc(rules, func(a, b CandidateRule) int {
			return cmp.Or(a.Severity.Compare(b.Severity), strings.Compare(a.ID, b.ID))
		})
	}
}

// isReview reports whether a check judges the answers of all other checks.
func (j *judge) isReview(id string) bool {
	return slices.ContainsFunc(j.node.Checks, func(c check.Check) bool { return c.ID == id && c.Review != nil })
}

// outcome returns a check's state in the first scenario, and whether all scenarios agree: the check is good, failed or undetermined
// in all of them.
func outcome(each []map[string]finding.Finding, id string) (state finding.State, same bool) {
	state = each[0][id].State
	for _, found := range each[1:] {
		other := found[id].State
		if (other == finding.Fail) != (state == finding.Fail) || undetermined(other) != undetermined(state) {
			return state, false
		}
	}
	return state, true
}

func undetermined(s finding.State) bool { return s == finding.Unknown || s == finding.Error }

// severest returns the worst severity of a check in the scenarios.
func severest(each []map[string]finding.Finding, id string, now finding.Finding) (worst rule.Severity) {
	worst = now.Severity
	for _, found := range each {
		if f := found[id]; f.Severity.Compare(worst) < 0 {
			worst = f.Severity
		}
	}
	return worst
}

// remaining returns the failures of a check that remain after the changes, in the words of the plain report, because the words of a
// scenario's report may refer to its assumptions.
func remaining(plain, after []finding.Finding) []finding.Finding {
	still := slices.DeleteFunc(slices.Clone(plain), func(f finding.Finding) bool {
		return !slices.ContainsFunc(after, func(a finding.Finding) bool {
			return a.Object == f.Object && (a.Device == nil) == (f.Device == nil) && (a.Device == nil || *a.Device == *f.Device)
		})
	})
	if len(still) == 0 {
		return after
	}
	return still
}

func in(r *finding.Report, id string, state finding.State) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f finding.Finding) bool { return f.ID != id || f.State != state })
}

func ids(found map[string]finding.Finding) []string {
	all := make([]string, 0, len(found))
	for id := range found {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}
