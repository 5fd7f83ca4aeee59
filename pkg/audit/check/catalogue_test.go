package check_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/catalogue"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/mapping"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

var update = flag.Bool("update", false, "rewrite CATALOGUE.md and the embedded rules")

// allRules are those of nodes and of clusters.
func allRules() []finding.Rule {
	var rules []finding.Rule
	for _, c := range check.Catalogue() {
		rules = append(rules, c.Rule)
	}
	return append(rules, cluster.Rules()...)
}

// TestCatalogueIsWrittenDown: CATALOGUE.md says what the checks say of themselves.
func TestCatalogueIsWrittenDown(t *testing.T) {
	var b bytes.Buffer
	if err := report.WriteCatalogue(&b, allRules(), "md", report.Options{}); err != nil {
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
		t.Errorf("CATALOGUE.md is out of date; rewrite it with `go test ./pkg/audit/check -run 'Catalogue|Embedded' -update` (-written +now):\n%s", diff)
	}
}

// TestRulesAreEmbedded checks that pkg/audit/finding/catalogue, for programs without the checks, has their texts.
func TestRulesAreEmbedded(t *testing.T) {
	const file = "../finding/catalogue/rules.json"
	rules := check.RulesOf(check.Catalogue())
	if *update {
		data, err := json.MarshalIndent(rules, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	embedded, err := catalogue.Rules()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(embedded, rules); diff != "" {
		t.Errorf("rules.json is out of date; rewrite it with `go test ./pkg/audit/check -run 'Catalogue|Embedded' -update` (-written +now):\n%s", diff)
	}
}

// TestRulesAreWhole: each has all that a reader of its finding needs.
func TestRulesAreWhole(t *testing.T) {
	groups := map[string]bool{}
	for _, g := range finding.Groups() {
		groups[g.Letters] = true
	}
	seen := map[string]bool{}
	for _, r := range allRules() {
		if r.Title == "" || r.Why == "" || r.Fix == "" || r.Severity == "" {
			t.Errorf("%s lacks a text", r.ID)
		}
		if seen[r.ID] || !groups[r.Group()] {
			t.Errorf("%s appears twice, or of no group", r.ID)
		}
		seen[r.ID] = true
	}
}

// TestNamedRulesExist: profiles and mappings name rules of the catalogue.
func TestNamedRulesExist(t *testing.T) {
	var have []string
	for _, r := range allRules() {
		have = append(have, r.ID)
	}
	for where, ids := range namedRules(t) {
		for _, id := range ids {
			if group, whole := strings.CutSuffix(id, "*"); whole {
				if !slices.ContainsFunc(finding.Groups(), func(g finding.Group) bool { return g.Letters+"-" == group }) {
					t.Errorf("%s names %s, which is no group", where, id)
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
	frameworks, err := mapping.Frameworks()
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

// TestCatalogueOmissionsHaveReasons: each omitted check has a reason and a way to check by hand, and no rule implements it.
func TestCatalogueOmissionsHaveReasons(t *testing.T) {
	rules := allRules()
	for _, not := range finding.NotAskedRules() {
		if not.Title == "" || not.Why == "" || not.ByHand == "" {
			t.Errorf("%s lacks a text", not.ID)
		}
		if slices.ContainsFunc(rules, func(r finding.Rule) bool { return r.ID == not.ID }) {
			t.Errorf("%s has a check: take it out of what is not asked", not.ID)
		}
	}
}

// TestNumbersOfGroups: what has no check between the first number of a group and its
// last is said to be not asked.
func TestNumbersOfGroups(t *testing.T) {
	known, last := map[string]bool{}, map[string]int{}
	enter := func(id string) {
		known[id] = true
		group, number, _ := strings.Cut(id, "-")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		last[group] = max(last[group], n)
	}
	for _, r := range allRules() {
		enter(r.ID)
	}
	for _, not := range finding.NotAskedRules() {
		enter(not.ID)
	}
	for group, n := range last {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprintf("%s-%03d", group, i); !known[id] {
				t.Errorf("%s is neither asked nor said to be not asked", id)
			}
		}
	}
}

// rulesByCode are the rules that fail for a fault which the verdict on a function has a
// code for.
func rulesByCode() map[rule.Code][]string { return check.RulesOfCodes() }

// TestFaultHasOneFix: the rule's general text begins with the code's.
func TestFaultHasOneFix(t *testing.T) {
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
		if !strings.Contains(isolation.Fix(rule.PeerToPeerPossible), word) {
			t.Errorf("the fix of missing ACS does not name %s", word)
		}
	}
}

// TestCodeAndCheckWeighTheSame: each code of the verdict is as severe as the checks that fail for it.
func TestCodeAndCheckWeighTheSame(t *testing.T) {
	rules := map[string]finding.Rule{}
	for _, c := range check.Catalogue() {
		rules[c.ID] = c.Rule
	}
	byCode := rulesByCode()
	byCode[rule.UnsafeInterruptsAllowed] = []string{"IOM-006", "IOM-007"}
	byCode[rule.GroupNotViable] = []string{"VFIO-024"}
	alone := []rule.Code{rule.Bridge, rule.GroupMates, rule.ACSUnreadable} // that no check fails for
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		code, severity := text.Code, text.Code.Severity()
		if severity == "" {
			continue
		}
		if len(byCode[code]) == 0 && !slices.Contains(alone, code) {
			t.Errorf("%s has no check", code)
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
	for _, code := range []rule.Code{rule.NoReset, rule.ConfigSpaceDead, rule.DirectMappedRegion, rule.ATSEnabled, rule.IdentityDefaultDomain, rule.WeakReset} {
		if compared[code] == 0 {
			t.Errorf("no finding was compared for %s", code)
		}
	}
}

func codeOf(rule string) (rule.Code, bool) {
	for code, ids := range rulesByCode() {
		if slices.Contains(ids, rule) {
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
