package check_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

var update = flag.Bool("update", false, "rewrite CATALOGUE.md")

// allRules are those of nodes and of clusters.
func allRules(t *testing.T) *rule.Catalogue {
	t.Helper()
	all, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEachRuleHasItsCheck: a rule without a check, and a check without a rule, make no catalogue.
func TestEachRuleHasItsCheck(t *testing.T) {
	all := allRules(t)
	if _, err := check.Of(all); err != nil {
		t.Error(err)
	}
	more := &rule.Catalogue{Rules: append(all.OfNodes(), rule.Rule{ID: "IOM-999"})}
	if _, err := check.Of(more); err == nil || !strings.Contains(err.Error(), "IOM-999 has no check") {
		t.Errorf("with a rule that has no check: error %v, want one that names it", err)
	}
	fewer := &rule.Catalogue{Rules: all.OfNodes()[1:]}
	if _, err := check.Of(fewer); err == nil || !strings.Contains(err.Error(), "IOM-001 has no rule") {
		t.Errorf("with a check that has no rule: error %v, want one that names it", err)
	}
}

// TestCatalogueIsWrittenDown: CATALOGUE.md says what the checks say of themselves.
func TestCatalogueIsWrittenDown(t *testing.T) {
	var b bytes.Buffer
	if err := report.WriteCatalogue(&b, allRules(t), "md", report.Options{}); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("CATALOGUE.md", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile("CATALOGUE.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(written), b.String()); diff != "" {
		t.Errorf("CATALOGUE.md is out of date; rewrite it with `go test ./pkg/audit/check -run Catalogue -update` (-written +now):\n%s", diff)
	}
}

// TestNamedRulesExist: profiles and mappings name rules of the catalogue.
func TestNamedRulesExist(t *testing.T) {
	have := rule.IDs(allRules(t).Rules)
	for where, ids := range namedRules(t) {
		for _, id := range ids {
			if group, whole := strings.CutSuffix(id, "*"); whole {
				if !slices.ContainsFunc(rule.Groups(), func(g rule.Group) bool { return g.Letters+"-" == group }) {
					t.Errorf("%s names %s, which is not a group", where, id)
				}
			} else if !slices.Contains(have, id) {
				t.Errorf("%s names %s, which no check has", where, id)
			}
		}
	}
}

// namedRules returns the ids that are named, by where.
func namedRules(t *testing.T) map[string][]string {
	t.Helper()
	named := map[string][]string{}
	for _, p := range finding.Profiles() {
		for id := range p.Severities {
			named["profile "+p.Name] = append(named["profile "+p.Name], id)
		}
	}
	frameworks, err := finding.Frameworks()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frameworks {
		for _, c := range f.Controls {
			named[f.ID+" "+c.Control] = c.Rules
		}
	}
	return named
}

// rulesByCode are the rules that fail for a fault which the verdict on a function has a
// code for.
func rulesByCode(t *testing.T) map[rule.Code][]string {
	t.Helper()
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[rule.Code][]string{}
	for _, text := range texts {
		if len(text.Code.Checks()) > 0 {
			rules[text.Code] = text.Code.Checks()
		}
	}
	return rules
}

// TestFaultHasOneFix: the rule's general text begins with the code's.
func TestFaultHasOneFix(t *testing.T) {
	rules := map[string]rule.Rule{}
	for _, r := range allRules(t).Rules {
		rules[r.ID] = r
	}
	moduleOf := map[string]string{"IOM-006": "vfio_iommu_type1", "IOM-007": "iommufd"}
	for code, ids := range rulesByCode(t) {
		for _, id := range ids {
			if id == "VFIO-024" { // finds all that no rule of its own finds
				continue
			}
			want := strings.ReplaceAll(code.Fix(), "<module>", moduleOf[id])
			if want == "" || !strings.HasPrefix(rules[id].Fix, want) {
				t.Errorf("%s: %s says %q, the verdict %q", code, id, rules[id].Fix, want)
			}
		}
	}
	for _, word := range []string{"disable_acs_redir", "config_acs"} {
		if !strings.Contains(rule.PeerToPeerPossible.Fix(), word) {
			t.Errorf("the fix of missing ACS does not name %s", word)
		}
	}
}

// TestCodeAndCheckWeighTheSame: each code of the verdict is as severe as the checks that fail for it.
func TestCodeAndCheckWeighTheSame(t *testing.T) {
	rules := map[string]rule.Rule{}
	for _, r := range allRules(t).Rules {
		rules[r.ID] = r
	}
	byCode := rulesByCode(t)
	alone := []rule.Code{rule.Bridge, rule.GroupMates, rule.ACSUnreadable} // that no check fails for
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		code, severity := text.Code, text.Severity
		if !text.Isolation {
			continue
		}
		if len(byCode[code]) == 0 && !slices.Contains(alone, code) {
			t.Errorf("%s has no check; name it in checks of its text in pkg/rule/texts.yaml", code)
		}
		for _, id := range byCode[code] {
			if id == "IOM-026" { // of groups that are larger than need be
				continue
			}
			if rules[id].Severity != severity {
				t.Errorf("%s is %s, and its check %s is %s", code, severity, id, rules[id].Severity)
			}
		}
	}
}

// TestFindingsAndRefusalsHaveTheVerdictsFix: what a rule says to do about a function with a
// fault is what the verdict says, and what a claim for it is refused with.
func TestFindingsAndRefusalsHaveTheVerdictsFix(t *testing.T) {
	compared := map[rule.Code]int{}
	for _, planted := range faults() {
		code, ok := codeOf(t, planted.rule)
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
				v := n.Judgment(function)
				want := fixes(slices.Concat(v.Reasons, v.Notes), code)
				if len(want) == 0 {
					continue
				}
				compared[code]++
				if slices.ContainsFunc(want, func(fix string) bool { return strings.Contains(fix, "<") || strings.Contains(fix, "> reset_method") }) {
					t.Errorf("the verdict says %q of %s, want the path of the case", want, f.Device)
				}
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
	for _, code := range []rule.Code{rule.NoReset, rule.ConfigSpaceDead, rule.DirectMappedRegion, rule.ATSEnabled, rule.IdentityDefaultDomain, rule.WeakReset} {
		if compared[code] == 0 {
			t.Errorf("no finding was compared for %s", code)
		}
	}
}

func codeOf(t *testing.T, id string) (rule.Code, bool) {
	for code, ids := range rulesByCode(t) {
		if slices.Contains(ids, id) {
			return code, true
		}
	}
	return "", false
}

func fixes(reasons []rule.Verdict, code rule.Code) []string {
	var all []string
	for _, r := range reasons {
		if r.Code == code {
			all = append(all, r.Fix)
		}
	}
	return all
}
