package finding_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func frameworks(t *testing.T) []finding.Framework {
	t.Helper()
	all, err := finding.Frameworks()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestControlsAreComplete(t *testing.T) {
	pattern := regexp.MustCompile(`^[A-Z0-9]{2,4}-([0-9]{3}|\*)$`)
	var ids []string
	for _, f := range frameworks(t) {
		ids = append(ids, f.ID)
		if f.Title == "" || f.Version == "" || len(f.Controls) == 0 {
			t.Errorf("%s lacks something: %+v", f.ID, f)
		}
		var seen []string
		for _, c := range f.Controls {
			if c.Control == "" || c.Title == "" || c.Rationale == "" || len(c.Rules) == 0 || slices.Contains(seen, c.Control) {
				t.Errorf("%s: %s lacks something, or is there twice", f.ID, c.Control)
			}
			seen = append(seen, c.Control)
			if c.Strength != finding.Direct && c.Strength != finding.Supporting {
				t.Errorf("%s: %s: strength %q", f.ID, c.Control, c.Strength)
			}
			for _, r := range c.Rules {
				if !pattern.MatchString(r) {
					t.Errorf("%s: %s: rule %q", f.ID, c.Control, r)
				}
			}
		}
	}
	if diff := cmp.Diff([]string{"anssi-bp-028", "bsi-c5", "iso-27017", "nist-800-125a", "nist-800-53"}, ids); diff != "" {
		t.Errorf("frameworks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ids, finding.FrameworkIDs()); diff != "" {
		t.Errorf("ids by their files (-want +got):\n%s", diff)
	}
}

// TestNothingIsCalledCompliant: checks support controls; whether somebody complies
// is for an assessor to say.
func TestNothingIsCalledCompliant(t *testing.T) {
	for _, f := range frameworks(t) {
		for _, c := range f.Controls {
			for _, word := range []string{"complian", "complies", "certif", "satisf", "fulfil"} {
				if strings.Contains(strings.ToLower(c.Rationale), word) {
					t.Errorf("%s %s: %s", f.ID, c.Control, c.Rationale)
				}
			}
		}
	}
}

func TestOf(t *testing.T) {
	var got []string
	for _, s := range finding.ControlsFor(frameworks(t), "RST-001") {
		got = append(got, s.Name+" "+s.Control+" "+string(s.Strength))
	}
	want := []string{"BSI C5 2026 OPS-31 direct", "ISO/IEC 27017 2015 CLD.9.5.1 direct", "NIST SP 800-53 Revision 5 SC-4 direct"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := finding.ControlsFor(frameworks(t), "XYZ-001"); none == nil || len(none) > 0 {
		t.Errorf("got %v", none)
	}
}
