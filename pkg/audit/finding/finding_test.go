package finding_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func address(t *testing.T, text string) *pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

func TestApplyWaivesWhatAWaiverCovers(t *testing.T) {
	const today = "2026-11-22"
	gpu := address(t, "0000:3b:00.0")
	waiver := func(scope, until string) finding.Waiver {
		return finding.Waiver{Rule: "IOM-001", Scope: scope, Until: until, Reason: "r", Author: "a"}
	}
	fails := finding.Finding{ID: "IOM-001", State: finding.Fail, Device: gpu}
	two := finding.Finding{ID: "IOM-001", State: finding.Fail, Devices: []pci.Address{*gpu, *address(t, "0000:41:00.0")}}
	for about, c := range map[string]struct {
		finding finding.Finding
		waivers []finding.Waiver
		state   finding.State
		expired bool
	}{
		"its device":                     {fails, []finding.Waiver{waiver("0000:3b:00.0", "2026-12-01")}, finding.Waived, false},
		"all":                            {fails, []finding.Waiver{waiver("*", "2026-12-01")}, finding.Waived, false},
		"the last day":                   {fails, []finding.Waiver{waiver("*", today)}, finding.Waived, false},
		"the day after":                  {fails, []finding.Waiver{waiver("*", "2026-11-21")}, finding.Fail, true},
		"another device":                 {fails, []finding.Waiver{waiver("0000:41:00.0", "2026-12-01")}, finding.Fail, false},
		"an old and a new":               {fails, []finding.Waiver{waiver("*", "2026-11-21"), waiver("0000:3b:00.0", "2026-12-01")}, finding.Waived, false},
		"a new and an old":               {fails, []finding.Waiver{waiver("0000:3b:00.0", "2026-12-01"), waiver("*", "2026-11-21")}, finding.Waived, false},
		"its object":                     {finding.Finding{ID: "IOM-001", State: finding.Fail, Object: "claim t1/a"}, []finding.Waiver{waiver("claim t1/a", today)}, finding.Waived, false},
		"the whole node":                 {finding.Finding{ID: "IOM-001", State: finding.Fail}, []finding.Waiver{waiver(finding.WholeNode, today)}, finding.Waived, false},
		"a device is not the whole node": {fails, []finding.Waiver{waiver(finding.WholeNode, today)}, finding.Fail, false},
		"one of two devices":             {two, []finding.Waiver{waiver("0000:3b:00.0", today)}, finding.Fail, false},
		"each of two devices":            {two, []finding.Waiver{waiver("0000:3b:00.0", today), waiver("0000:41:00.0", today)}, finding.Waived, false},
		"no scope":                       {finding.Finding{ID: "IOM-001", State: finding.Fail}, []finding.Waiver{waiver("", today)}, finding.Fail, false},
		"another rule":                   {finding.Finding{ID: "IOM-002", State: finding.Fail, Device: gpu}, []finding.Waiver{waiver("*", today)}, finding.Fail, false},
		"what is unknown":                {finding.Finding{ID: "IOM-001", State: finding.Unknown}, []finding.Waiver{waiver("*", today)}, finding.Unknown, false},
		"what is all right":              {finding.Finding{ID: "IOM-001", State: finding.Pass}, []finding.Waiver{waiver("*", today)}, finding.Pass, false},
	} {
		findings := []finding.Finding{c.finding}
		finding.Apply(c.waivers, today, findings)
		expired := findings[0].Waiver != nil && findings[0].Waiver.Expired
		if findings[0].State != c.state || expired != c.expired {
			t.Errorf("%s: %s, expired %t; want %s, %t", about, findings[0].State, expired, c.state, c.expired)
		}
	}
}

// TestUnusedWaiversAreFound: a waiver that no failure needs is one that its author believes to work.
func TestUnusedWaiversAreFound(t *testing.T) {
	gpu := address(t, "0000:3b:00.0")
	findings := []finding.Finding{
		{ID: "IOM-001", State: finding.Fail},
		{ID: "IOM-002", State: finding.Fail, Device: gpu, Devices: []pci.Address{*gpu}},
		{ID: "IOM-003", State: finding.Pass},
		{ID: "IOM-004", State: finding.Fail, Object: "port 0000:3a:01.0", Devices: []pci.Address{*gpu}},
	}
	for scope, unused := range map[[2]string]bool{
		{"IOM-001", "*"}: false, {"IOM-001", "node"}: false, {"IOM-001", "0000:3b:00.0"}: false, {"IOM-001", "claim a/b"}: true,
		{"IOM-002", "0000:3b:00.0"}: false, {"IOM-002", "node"}: true, {"IOM-002", "0000:41:00.0"}: true,
		{"IOM-003", "*"}: true, {"IOM-004", "0000:3b:00.0"}: false, {"IOM-004", "port 0000:3a:01.0"}: false,
		{"K8S-001", "*"}: false, // which was not asked
	} {
		w := finding.Waiver{Rule: scope[0], Scope: scope[1], Until: "2026-12-01"}
		if got := len(finding.Unused([]finding.Waiver{w}, findings)) > 0; got != unused {
			t.Errorf("%v: unused %t, want %t", scope, got, unused)
		}
	}
}

func TestFinishOrdersAndCounts(t *testing.T) {
	r := finding.Report{Findings: []finding.Finding{
		{ID: "IOM-001", State: finding.Pass, Severity: rule.Critical},
		{ID: "IOM-003", State: finding.Fail, Severity: rule.Low, Tenants: []string{"t1"}},
		{ID: "IOM-002", State: finding.Unknown, Severity: rule.Critical},
		{ID: "ACS-001", State: finding.Fail, Severity: rule.High, Exposure: finding.Published, Tenants: []string{"t1", "t2"}},
		{ID: "IOM-005", State: finding.Fail, Severity: rule.High, Exposure: finding.CrossTenant},
		{ID: "IOM-004", State: finding.Waived, Severity: rule.Critical},
	}}
	r.Finish()
	var order []string
	for _, f := range r.Findings {
		order = append(order, f.ID)
	}
	if diff := cmp.Diff([]string{"IOM-005", "ACS-001", "IOM-003", "IOM-002", "IOM-004", "IOM-001"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if s := r.Summary; s.Verdict != finding.Fail || s.Rules != 6 || s.Tenants != 2 || s.Failed[rule.High] != 2 || s.States[finding.Error] != 0 {
		t.Errorf("summary %+v", s)
	}
	if n := len(r.Failing(rule.High)); n != 2 {
		t.Errorf("%d fail at high or worse", n)
	}
	text, err := json.Marshal(&finding.Report{})
	if err != nil || !strings.Contains(string(text), "null") {
		t.Fatalf("an unfinished report has no null: %v, %s", err, text)
	}
	if text, err = json.Marshal(r); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("a finished one has null: %v, %s", err, text)
	}
}

// TestProfilesAreWhole: each has a name of its own and a sentence, and weighs rules
// by severities that there are; the default changes none.
func TestProfilesAreWhole(t *testing.T) {
	severities := append(finding.Severities(), finding.Off)
	seen := map[string]bool{}
	for i, p := range finding.Profiles() {
		if p.Name == "" || p.About == "" || seen[p.Name] || (len(p.Severities) == 0) != (i == 0) {
			t.Errorf("profile %d: %+v", i, p)
		}
		seen[p.Name] = true
		for id, s := range p.Severities {
			if !slices.Contains(severities, s) {
				t.Errorf("%s: %s is %q", p.Name, id, s)
			}
		}
		if got, ok := finding.ProfileNamed(p.Name); !ok || got.About != p.About {
			t.Errorf("no profile by the name %s", p.Name)
		}
	}
	single, _ := finding.ProfileNamed(finding.SingleTenant)
	for id, want := range map[string]rule.Severity{"ACS-009": rule.Low, "IOM-003": rule.Critical} {
		if got := single.Severity(&rule.Rule{ID: id, Severity: rule.Critical}); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
}
