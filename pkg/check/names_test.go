package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/finding/mapping"
)

// awaited are rules that profiles and mappings name though no check has them yet.
// The list only shrinks: one that is in the catalogue must go from here.
func awaited() []string {
	return strings.Fields(`
		IOM-022 VFIO-016 RST-009 RST-011 GPU-007 GPU-011 NIC-010 NIC-017 HOST-014 HOST-019 RT-023 CC-002 CC-003
	`)
}

// TestNamedRulesExist: profiles and mappings name rules of the catalogue.
func TestNamedRulesExist(t *testing.T) {
	var have []string
	for _, r := range allRules() {
		have = append(have, r.ID)
	}
	var came []string
	for _, id := range awaited() {
		if slices.Contains(have, id) {
			came = append(came, id)
		}
	}
	if len(came) > 0 {
		t.Errorf("the catalogue has these now; take them out of awaited: %s", strings.Join(came, " "))
	}
	for where, ids := range namedRules(t) {
		for _, id := range ids {
			if group, whole := strings.CutSuffix(id, "*"); whole {
				if !slices.ContainsFunc(finding.Groups(), func(g finding.Group) bool { return g.Letters+"-" == group }) {
					t.Errorf("%s names %s, which is no group", where, id)
				}
			} else if !slices.Contains(have, id) && !slices.Contains(awaited(), id) {
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

func TestAwaitedRulesAreNamed(t *testing.T) {
	var named []string
	for _, ids := range namedRules(t) {
		named = append(named, ids...)
	}
	for _, id := range awaited() {
		if !slices.Contains(named, id) {
			t.Errorf("nobody names %s any more; take it out of awaited", id)
		}
	}
}
