package finding_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestCompare: what is new comes first, what got worse is marked, and what is in
// order is not spoken of.
func TestCompare(t *testing.T) {
	gpu, nic := &pci.Address{Bus: 0x3b}, &pci.Address{Bus: 0x5e}
	low, high := rule.Low, rule.High
	older := &finding.Report{Findings: []finding.Finding{
		{ID: "A-001", State: finding.Fail, Severity: high, Exposure: finding.Published, Device: gpu},
		{ID: "A-002", State: finding.Fail, Severity: high, Exposure: finding.CrossTenant},
		{ID: "A-003", State: finding.Pass},
		{ID: "A-004", State: finding.Fail, Severity: low, Exposure: finding.Unexposed, Object: "port"},
		{ID: "A-005", State: finding.Fail, Severity: low, Text: "one"},
		{ID: "A-005", State: finding.Fail, Severity: low, Text: "two"},
		{ID: "A-006", State: finding.Fail, Severity: high},
	}}
	newer := &finding.Report{Findings: []finding.Finding{
		{ID: "A-001", State: finding.Fail, Severity: high, Exposure: finding.CrossTenant, Device: gpu, Tenants: []string{"t1", "t2"}},
		{ID: "A-001", State: finding.Fail, Severity: high, Exposure: finding.Published, Device: nic},
		{ID: "A-002", State: finding.Pass},
		{ID: "A-003", State: finding.Unknown, Severity: low},
		{ID: "A-004", State: finding.Fail, Severity: low, Exposure: finding.Unexposed, Object: "port", Text: "in other words"},
		{ID: "A-005", State: finding.Fail, Severity: low, Text: "one"},
		{ID: "A-006", State: finding.Waived, Severity: high},
	}}
	type change struct {
		Kind  finding.Kind
		ID    string
		Worse bool
	}
	d := finding.Compare(older, newer)
	var got []change
	for i := range d.Changes {
		got = append(got, change{d.Changes[i].Kind, d.Changes[i].Finding().ID, d.Changes[i].Worse})
	}
	want := []change{
		{finding.New, "A-001", true},
		{finding.New, "A-003", true},
		{finding.Changed, "A-001", true},
		{finding.Changed, "A-006", false},
		{finding.Gone, "A-002", false},
		{finding.Gone, "A-005", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if d.Same != 2 {
		t.Errorf("%d as before, want 2", d.Same)
	}
}
