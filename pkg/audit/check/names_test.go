package check_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/mapping"
)

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

// TestWhatIsNotAsked: each has its reason and a way by hand, and none is asked after all.
func TestWhatIsNotAsked(t *testing.T) {
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
