package report_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestJUnitFailsWithTheRun: whatever ends the run with an error is a failure or an error in the file, too, for CI systems that read only it.
// A ledger that fails its verification does so at every severity, in every format.
func TestJUnitFailsWithTheRun(t *testing.T) {
	ledger := finding.Finding{ID: finding.LedgerSound, Title: "The ledger verifies", State: finding.Fail, Severity: rule.Medium, Text: "it is cut off"}
	minor := finding.Finding{ID: "RST-012", Title: "No option ROM", State: finding.Fail, Severity: rule.Low, Text: "the VM sees one"}
	unsure := finding.Finding{ID: "IOM-001", Title: "The IOMMU is on", State: finding.Unknown, Severity: rule.Critical, Text: "can't be read"}
	for name, c := range map[string]struct {
		findings []finding.Finding
		options  report.Options
		counts   string
		verdict  string
	}{
		"a failure below the severity":      {[]finding.Finding{minor}, report.Options{FailOn: rule.High}, `failures="0" errors="0" skipped="1"`, "pass"},
		"a failure of the ledger":           {[]finding.Finding{minor, ledger}, report.Options{FailOn: rule.High}, `failures="1" errors="0" skipped="1"`, "fail"},
		"what could not be told":            {[]finding.Finding{unsure}, report.Options{FailOn: rule.High}, `failures="0" errors="0" skipped="1"`, "unknown"},
		"what could not be told, if strict": {[]finding.Finding{unsure}, report.Options{FailOn: rule.High, Strict: true}, `failures="0" errors="1" skipped="0"`, "unknown"},
		"each failure without a severity":   {[]finding.Finding{minor}, report.Options{}, `failures="1" errors="0" skipped="0"`, "fail"},
	} {
		d := document(c.findings)
		if got, _, _ := strings.Cut(write(t, d, "junit", c.options), "<testsuite "); !strings.Contains(got, c.counts) {
			t.Errorf("%s: got %s, want %s", name, got, c.counts)
		}
		if got := write(t, d, "json", c.options); !strings.Contains(got, `"verdict": "`+c.verdict+`"`) {
			t.Errorf("%s: got %s, want the verdict %s", name, got, c.verdict)
		}
	}
}
