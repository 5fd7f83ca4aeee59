package fleet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// fails is a device for which checks fail; the first taints it.
func fails(name, failed, worst string) resourceapi.Device {
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"auditFailed": {StringValue: &failed}}}
	if worst != "" {
		d.Taints = []resourceapi.DeviceTaint{taint(driver+"/audit", worst)}
	}
	return d
}

func rules() []rule.Rule {
	return []rule.Rule{
		{ID: "IOM-003", Title: "No-IOMMU mode is off", Severity: rule.Critical, Fix: "switch it off"},
		{ID: "ACS-001", Title: "ACS is on", Severity: rule.High, Fix: "switch it on"},
	}
}

// report is a node's own, with one finding.
func report(node, at string, f finding.Finding) *finding.Report {
	r := &finding.Report{Subject: finding.Subject{Kind: "node", Name: node, Time: at}, Findings: []finding.Finding{f}}
	r.Finish()
	return r
}

// TestAuditRollsUp what devices and reports say, worst nodes first, the latest report of each.
func TestAuditRollsUp(t *testing.T) {
	n2 := slice("n2", resourceapi.Device{Name: "gpu-0000-01-00-0"})
	n2.Spec.NodeName = new("n2")
	s := listed{
		Slices: []resourceapi.ResourceSlice{n2, slice("n1", fails(gpu, "IOM-003,NEW-001", "IOM-003"), fails("gpu-0000-3c-00-0", "IOM-003", ""))},
		Claims: claims(holds("n1", gpu)), Now: minute(30).Time,
	}
	at, err := pci.ParseAddress("0000:01:00.0")
	if err != nil {
		t.Fatal(err)
	}
	failed := finding.Finding{ID: "ACS-001", State: finding.Fail, Severity: rule.Medium, Devices: []pci.Address{at}, Text: "the port has none"}
	old := failed
	old.ID = "IOM-003"
	unpublished := failed
	unpublished.Devices = nil
	got := s.state().Audit([]*finding.Report{
		report("n2", "2026-11-22T10:00:00Z", failed), report("n2", "2026-11-22T09:00:00Z", old), report("n3", "2026-11-22T09:00:00Z", unpublished),
	}, rules())
	want := []fleet.NodeAudit{
		{Node: "n1", Devices: 2, Tainted: 1, Failed: []fleet.FailedCheck{
			{ID: "NEW-001", Devices: []string{gpu}, Claims: []string{"t1/c"}, Taints: true, By: []string{"plugin"}},
			{
				ID: "IOM-003", Severity: rule.Critical, Title: "No-IOMMU mode is off", Fix: "switch it off", Devices: []string{gpu, "gpu-0000-3c-00-0"},
				Claims: []string{"t1/c"}, Taints: true, By: []string{"plugin"},
			},
		}},
		{Node: "n2", Devices: 1, Verdict: finding.Fail, Failed: []fleet.FailedCheck{{
			ID: "ACS-001", Severity: rule.Medium, Title: "ACS is on", Fix: "switch it on", Devices: []string{"gpu-0000-01-00-0"}, Claims: []string{},
			By: []string{"report"}, Texts: []string{"the port has none"},
		}}},
		{Node: "n3", Verdict: finding.Fail, Failed: []fleet.FailedCheck{{
			ID: "ACS-001", Severity: rule.Medium, Title: "ACS is on", Fix: "switch it on", Devices: []string{}, Claims: []string{},
			By: []string{"report"}, Texts: []string{"the port has none"},
		}}},
	}
	for i := range got {
		got[i].Reported = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWorstCheckThatTheListHasNoRoomForIsTold: the taint names it.
func TestWorstCheckThatTheListHasNoRoomForIsTold(t *testing.T) {
	s := listed{Slices: []resourceapi.ResourceSlice{slice("n1", fails(gpu, "", "IOM-003"))}}
	if got := s.state().Audit(nil, rules()); len(got) != 1 || len(got[0].Failed) != 1 || got[0].Failed[0].ID != "IOM-003" {
		t.Errorf("%+v", got)
	}
}

// TestWorstOfACheckCounts: reports have the worst finding of a check first, and milder ones behind.
func TestWorstOfACheckCounts(t *testing.T) {
	s := listed{Now: minute(30).Time}
	r := report("n1", "2026-11-22T10:00:00Z", finding.Finding{ID: "ACS-001", State: finding.Fail, Severity: rule.Critical})
	for _, severity := range []rule.Severity{rule.Medium, rule.High} {
		r.Findings = append(r.Findings, finding.Finding{ID: "ACS-001", State: finding.Fail, Severity: severity})
	}
	got := s.state().Audit([]*finding.Report{r}, rules())
	if len(got) != 1 || len(got[0].Failed) != 1 || got[0].Failed[0].Severity != rule.Critical {
		t.Errorf("%+v", got)
	}
}

// TestReportOfAnotherDayIsNoneOfNow, nor is one of tomorrow.
func TestReportOfAnotherDayIsNoneOfNow(t *testing.T) {
	s := listed{Now: minute(30).Time}
	passes := finding.Finding{ID: "ACS-001", State: finding.Pass, Severity: rule.High}
	for at, want := range map[string]string{
		"2026-11-22T10:00:00Z": "", "2026-11-21T10:31:00Z": "", "2026-11-22T10:34:00Z": "",
		"2026-11-21T08:00:00Z": "node n1 was audited 27h0m0s ago", "2026-11-22T10:40:00Z": "node n1 has a report from the future: a clock is wrong",
	} {
		failed := s.state().Audit([]*finding.Report{report("n1", at, passes)}, rules())[0].Failed
		got := ""
		if len(failed) == 1 && failed[0].Severity == rule.Medium && failed[0].Fix != "" {
			got = strings.Join(failed[0].Texts, "; ")
		}
		if got != want {
			t.Errorf("a report of %s: %q, want %q", at, got, want)
		}
	}
}

// TestRollUpOfALargeReportIsLinear: a report that names twice as many addresses of twice as many devices costs twice as much.
func TestRollUpOfALargeReportIsLinear(t *testing.T) {
	allocations := func(n int) float64 {
		found := finding.Finding{ID: "ACS-001", State: finding.Fail, Severity: rule.High}
		var devices []resourceapi.Device
		for i := range n {
			a := pci.Address{Bus: uint8(i >> 5), Device: uint8(i & 31)}
			found.Devices = append(found.Devices, a)
			devices = append(devices, resourceapi.Device{Name: "gpu-" + a.Label()})
		}
		l := listed{Now: minute(30).Time, Slices: []resourceapi.ResourceSlice{slice("n1", devices...)}}
		s, r := l.state(), report("n1", "2026-11-22T10:00:00Z", found)
		return testing.AllocsPerRun(1, func() {
			if got := s.Audit([]*finding.Report{r}, rules()); len(got) != 1 || len(got[0].Failed) != 1 || len(got[0].Failed[0].Devices) != n {
				t.Fatalf("%d addresses: %+v", n, got)
			}
		})
	}
	if few, many := allocations(200), allocations(400); many > 3*few {
		t.Errorf("200 addresses take %.0f allocations, and 400 take %.0f", few, many)
	}
}

// TestReportIsItsNodes, which may have another hostname: its ledger has the name that the cluster knows.
func TestReportIsItsNodes(t *testing.T) {
	s := listed{Now: minute(30).Time, Slices: []resourceapi.ResourceSlice{slice("n1", resourceapi.Device{Name: gpu})}}
	r := report("host-7.example", "2026-11-22T10:00:00Z", finding.Finding{ID: "ACS-001", State: finding.Fail, Severity: rule.High})
	r.NodeRecords = &finding.NodeRecords{Ledger: &finding.LedgerRecord{Checkpoint: "kata-vfio.dev/n1\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— kata-vfio.dev/n1 AAAAAAAAAAAAAAAA\n"}}
	if got := s.state().Audit([]*finding.Report{r}, rules()); len(got) != 1 || got[0].Node != "n1" || got[0].Reported == nil {
		t.Errorf("%+v", got)
	}
}
