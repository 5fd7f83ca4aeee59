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
		IOM-005 IOM-006 IOM-007 IOM-009 IOM-010 IOM-011 IOM-017 IOM-022 IOM-023
		ACS-001 ACS-002 ACS-003 ACS-004 ACS-005 ACS-008 ACS-009 ACS-010 ACS-012 ACS-013 ACS-014 ACS-017 ACS-019
		VFIO-001 VFIO-002 VFIO-007 VFIO-008 VFIO-009 VFIO-010 VFIO-016
		RST-001 RST-002 RST-003 RST-004 RST-005 RST-006 RST-007 RST-008 RST-009 RST-010 RST-011 RST-013
		GPU-001 GPU-002 GPU-004 GPU-005 GPU-006 GPU-007 GPU-008 GPU-009 GPU-011
		NIC-001 NIC-002 NIC-003 NIC-004 NIC-006 NIC-007 NIC-009 NIC-010 NIC-015 NIC-017
		HOST-001 HOST-002 HOST-003 HOST-004 HOST-006 HOST-009 HOST-010 HOST-011 HOST-012 HOST-014 HOST-015 HOST-016 HOST-019
		RT-001 RT-006 RT-007 RT-008 RT-014 RT-015 RT-017 RT-020 RT-021 RT-022 RT-023
		CDI-001
		CC-001 CC-002 CC-003
		OBS-001 OBS-002 OBS-003
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
