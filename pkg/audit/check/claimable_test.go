package check_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// eachRefusalIsFound holds that each selected function that no claim can get has a failing finding, and that VFIO-024 leaves a
// fault to the rule that it has of its own, so that one waiver accepts it. It counts why claims are refused.
func eachRefusalIsFound(t *testing.T, n *facts.Node, findings []finding.Finding, refused map[rule.Code]int) {
	t.Helper()
	fails := failuresOf(t, findings)
	for a, code := range unclaimable(n) {
		refused[code]++
		ids := fails.IDs(a)
		if len(ids) == 0 {
			t.Errorf("no claim can get %s (%s), and no rule fails for it", a, code)
		}
		own := slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(rulesOfVerdicts(t), id) })
		if code == rule.NotIsolated && own && slices.Contains(ids, "VFIO-024") {
			t.Errorf("%s is refused with %s, and two rules find it: %v", a, code, ids)
		}
	}
}

// failuresOf returns the failures of each function, of any severity.
func failuresOf(t *testing.T, findings []finding.Finding) *check.Failures {
	g := check.Enforcement{Counts: rule.Low, Today: "2026-11-22", Checks: check.Checks(checks(t))}
	return g.Weigh(findings, func(pci.Address, rule.Failure) bool { return false })
}

// unclaimable returns why claims for selected functions are refused on a node without its plugin. A drain is meant, and what is free in
// an exclusive domain can be had by its tenant.
func unclaimable(n *facts.Node) map[pci.Address]rule.Code {
	planned, _ := n.Planned()
	planned.Failing = nil
	refused := map[pci.Address]rule.Code{}
	assessor := plan.NewAssessor(planned)
	for _, f := range nodeconfig.Select(nil, n.Snapshot).Ours() {
		as := assessor.Assess(f)
		for _, r := range as.Faults() {
			if r.Code != rule.Drained && r.Code != rule.DomainOfOtherTenant && refused[f.Address] == "" {
				refused[f.Address] = r.Code
			}
		}
	}
	return refused
}

// rulesOfVerdicts are the rules of one code each.
func rulesOfVerdicts(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, ids := range rulesByCode(t) {
		all = append(all, ids...)
	}
	return slices.DeleteFunc(all, func(id string) bool { return id == "VFIO-024" })
}
