package publish_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// audited returns a device's taint and attributes of the audit in one line.
func audited(d *resourceapi.Device) string {
	var words []string
	for _, taint := range d.Taints {
		words = append(words, strings.TrimPrefix(taint.Key, "kata-vfio.dev/")+"="+taint.Value)
	}
	for _, name := range []resourceapi.QualifiedName{publish.AttrAuditFailed, publish.AttrAuditSeverity} {
		if v := d.Attributes[name].StringValue; v != nil {
			words = append(words, *v)
		}
	}
	return strings.Join(words, " ")
}

func TestFailedChecksAreTaintAndAttributes(t *testing.T) {
	failing := func(pairs ...string) (all []rule.Failure) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, rule.Failure{ID: pairs[i], Severity: rule.Severity(pairs[i+1])})
		}
		return all
	}
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("RST-%03d", i), "high")
	}
	for name, tt := range map[string]struct {
		failing []rule.Failure
		reason  rule.Severity // of the verdict
		want    string
	}{
		"none":                      {nil, "", ""},
		"one":                       {failing("ACS-017", "high"), "", "audit=ACS-017 ACS-017 high"},
		"the worst first":           {failing("ACS-001", "high", "IOM-003", "critical"), "", "audit=IOM-003 IOM-003,ACS-001 critical"},
		"beside a verdict":          {failing("ACS-017", "high"), rule.Critical, "not-isolated=NoReset audit=ACS-017 ACS-017 critical"},
		"worse than the verdict":    {failing("IOM-003", "critical"), rule.Medium, "not-isolated=NoReset audit=IOM-003 IOM-003 critical"},
		"more than a value may say": {failing(many...), "", "audit=RST-000 RST-000,RST-001,RST-002,RST-003,RST-004,RST-005,RST-006,RST-007 high"},
	} {
		t.Run(name, func(t *testing.T) {
			f := hopper(t, "0000:3b:00.0", 10)
			n := nodeOf(f)
			if tt.reason != "" {
				blemish(n, f.Address, rule.NoReset, tt.reason)
			}
			n.Health[f.Address] = publish.Health{Failing: tt.failing}
			if got := audited(deviceNamed(publish.Pools(n), "gpu-0000-3b-00-0")); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A partition is as severe as the worst of its parts' verdicts and failing checks.
func TestPartitionFailsWhatItsPartsDo(t *testing.T) {
	const name = "gpu-x2-0000-86-87"
	parts, err := device.ParseParts(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		failing rule.Severity // of the first GPU
		reason  rule.Severity // of the second GPU's verdict
		want    string
	}{
		{"", rule.High, "high"},
		{rule.Medium, rule.Critical, "critical"},
		{rule.Critical, rule.Medium, "critical"},
	} {
		n := joined(t)
		if tt.failing != "" {
			n.Health[parts[0].Address] = publish.Health{Failing: []rule.Failure{{ID: "ACS-009", Severity: tt.failing}}}
		}
		blemish(n, parts[1].Address, rule.NoReset, tt.reason)
		severity := deviceNamed(publish.Pools(n), name).Attributes[publish.AttrAuditSeverity].StringValue
		if severity == nil || *severity != tt.want {
			t.Errorf("%+v: got the severity %v, want %s", tt, severity, tt.want)
		}
	}
}

// A pair fails what either of its functions does.
func TestPairFailsWhatItsPartsDo(t *testing.T) {
	n := paired(t)
	parts, err := device.ParseParts(pairName)
	if err != nil {
		t.Fatal(err)
	}
	n.Health[parts[0].Address] = publish.Health{Failing: []rule.Failure{{ID: "IOM-003", Severity: rule.High}}}
	n.Health[parts[1].Address] = publish.Health{Failing: []rule.Failure{{ID: "ACS-009", Severity: rule.Critical}, {ID: "IOM-003", Severity: rule.High}}}
	if got, want := audited(deviceNamed(publish.Pools(n), pairName)), "audit=ACS-009 ACS-009,IOM-003 critical"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
