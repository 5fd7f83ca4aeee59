package report_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestJUnitFailsWithTheRun: whatever ends the run with an error is a failure or an error in the file, too, for CI systems that read only it.
func TestJUnitFailsWithTheRun(t *testing.T) {
	ledger := finding.Finding{ID: "OBS-001", Title: "The ledger verifies", State: finding.Fail, Severity: rule.Medium, Text: "it ends in the middle of a write"}
	unsure := finding.Finding{ID: "IOM-001", Title: "The IOMMU is on", State: finding.Unknown, Severity: rule.Critical, Text: "the registers can't be read"}
	for name, c := range map[string]struct {
		options report.Options
		want    string
	}{
		"a failure below the severity":       {report.Options{FailOn: rule.High}, `failures="0" errors="0" skipped="2"`},
		"a failure that always fails":        {report.Options{FailOn: rule.High, AlwaysFail: []string{"OBS-001"}}, `failures="1" errors="0" skipped="1"`},
		"what could not be told, if strict":  {report.Options{FailOn: rule.High, Strict: true}, `failures="0" errors="1" skipped="1"`},
		"each failure if no severity is set": {report.Options{}, `failures="1" errors="0" skipped="1"`},
	} {
		got, _, _ := strings.Cut(write(t, document([]finding.Finding{ledger, unsure}), "junit", c.options), "<testsuite ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
