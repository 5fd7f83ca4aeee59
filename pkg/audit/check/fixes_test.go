package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// rulesByCode are the rules that fail for a fault which the verdict on a function has a
// code for.
func rulesByCode() map[isolation.Code][]string {
	return map[isolation.Code][]string{
		isolation.NoGroup:              {"IOM-001"},
		isolation.NoIOMMU:              {"IOM-002", "IOM-003"},
		isolation.NoInterruptRemapping: {"IOM-005"},
		isolation.PeerToPeer:           {"ACS-001", "ACS-002", "IOM-026"},
		isolation.ACSUnproven:          {"ACS-008"},
		isolation.NoReset:              {"RST-001"},
		isolation.WeakReset:            {"RST-002"},
		isolation.Dead:                 {"RST-008"},
		isolation.DirectRegion:         {"IOM-016"},
		isolation.ATSEnabled:           {"IOM-019"},
		isolation.IdentityDomain:       {"IOM-013"},
	}
}

// TestAFaultHasOneFix: the rule's general text begins with the code's.
func TestAFaultHasOneFix(t *testing.T) {
	rules := map[string]finding.Rule{}
	for _, c := range check.Catalogue() {
		rules[c.ID] = c.Rule
	}
	for code, ids := range rulesByCode() {
		for _, id := range ids {
			if want := isolation.Fix(code); want == "" || !strings.HasPrefix(rules[id].Fix, want) {
				t.Errorf("%s: %s says %q, the verdict %q", code, id, rules[id].Fix, want)
			}
		}
	}
	for _, word := range []string{"disable_acs_redir", "config_acs"} {
		if !strings.Contains(isolation.Fix(isolation.PeerToPeer), word) {
			t.Errorf("the fix of missing ACS does not name %s", word)
		}
	}
}

// TestFindingsAndRefusalsHaveTheVerdictsFix: what a rule says to do about a function with a
// fault is what the verdict says, and what a claim for it is refused with.
func TestFindingsAndRefusalsHaveTheVerdictsFix(t *testing.T) {
	compared := map[isolation.Code]int{}
	for _, planted := range faults() {
		code, ok := codeOf(planted.rule)
		if !ok || compared[code] > 0 { // a machine each: one is enough
			continue
		}
		t.Run(planted.rule+"/"+planted.about, func(t *testing.T) {
			tree := planted.board(t)
			planted.plant(tree)
			fsys, s := tree.Read()
			n := facts.New(fsys, s)
			assessor := plan.NewAssessor(plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)})
			for _, f := range audit(t, tree).Findings {
				if f.ID != planted.rule || f.State != finding.Fail || f.Device == nil {
					continue
				}
				function, _ := s.Function(*f.Device)
				v := n.Verdict(function)
				want := fixes(slices.Concat(v.Reasons, v.Notes), code)
				if len(want) == 0 {
					continue
				}
				compared[code]++
				if !slices.Contains(want, f.Remediation) {
					t.Errorf("%s says %q of %s, the verdict %q", f.ID, f.Remediation, f.Device, want)
				}
				for _, r := range assessor.Assess(function).Refusals {
					if string(r.Code) == string(code) && !slices.ContainsFunc(want, func(fix string) bool { return strings.HasPrefix(r.Fix, fix) }) {
						t.Errorf("a claim for %s is refused with the fix %q, the verdict says %q", f.Device, r.Fix, want)
					}
				}
			}
		})
	}
	for _, code := range []isolation.Code{isolation.NoReset, isolation.Dead, isolation.DirectRegion, isolation.ATSEnabled, isolation.IdentityDomain, isolation.WeakReset} {
		if compared[code] == 0 {
			t.Errorf("no finding was compared for %s", code)
		}
	}
}

func codeOf(rule string) (isolation.Code, bool) {
	for code, ids := range rulesByCode() {
		if slices.Contains(ids, rule) {
			return code, true
		}
	}
	return "", false
}

func fixes(reasons []isolation.Reason, code isolation.Code) []string {
	var all []string
	for _, r := range reasons {
		if r.Code == code {
			all = append(all, r.Fix)
		}
	}
	return all
}
