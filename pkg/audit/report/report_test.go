package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

func write(t *testing.T, d *report.Document, format string, o report.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, d, format, o); err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	extension := map[string]string{"table": "txt", "wide": "wide.txt", "junit": "xml", "sarif": "sarif", "ocsf": "ocsf.ndjson"}
	for _, format := range report.Formats() {
		if format == "html" {
			continue // the tests of Page have their own
		}
		name := extension[format]
		if name == "" {
			name = format
		}
		golden.Compare(t, "few."+name, write(t, document(few()), format, report.Options{}))
	}
	golden.Compare(t, "many.txt", write(t, document(many()), "table", report.Options{}))
	golden.Compare(t, "color.txt", write(t, document(few()), "table", report.Options{Color: true}))
	golden.Compare(t, "high.txt", write(t, document(many()), "table", report.Options{Show: rule.High}))
	golden.Compare(t, "clean.txt", write(t, document(few()[2:3]), "table", report.Options{}))
	golden.Compare(t, "undetermined.txt", write(t, document(few()[2:7]), "table", report.Options{}))
}

func TestTableKeepsToThePage(t *testing.T) {
	for _, findings := range [][]finding.Finding{few(), many()} {
		for text := range strings.Lines(write(t, document(findings), "table", report.Options{})) {
			text = strings.TrimSuffix(text, "\n")
			if n := utf8.RuneCountInString(text); n > output.PageWidth || strings.TrimRight(text, " ") != text {
				t.Errorf("%d columns: %q", n, text)
			}
		}
	}
}

func TestColorAddsNothingButColor(t *testing.T) {
	colored := write(t, document(many()), "table", report.Options{Color: true})
	plain := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, "")
	if plain == colored {
		t.Error("no color at all")
	}
	if diff := cmp.Diff(write(t, document(many()), "table", report.Options{}), plain); diff != "" {
		t.Errorf("(-plain +colored):\n%s", diff)
	}
}

// TestSeverityFiltersAllFormats: what is less severe is in none of them, and the
// summary counts it all the same.
func TestSeverityFiltersAllFormats(t *testing.T) {
	for _, format := range report.Formats() {
		allOf, some := write(t, document(many()), format, report.Options{}), write(t, document(many()), format, report.Options{Show: rule.High})
		if !strings.Contains(allOf, "object of VFIO-015") || strings.Contains(some, "object of VFIO-015") || !strings.Contains(some, "object of RT-025") {
			t.Errorf("%s: the filter does not work", format)
		}
	}
	var doc finding.Report
	if err := json.Unmarshal([]byte(write(t, document(many()), "json", report.Options{Show: rule.High})), &doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document(many()).Summary, doc.Summary); diff != "" {
		t.Errorf("summary (-whole +filtered):\n%s", diff)
	}
}

// brokenPipe fails as a closed pipe does.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestTreeWithoutANameIsCalledSomething: a copy may not name its node.
func TestTreeWithoutANameIsCalledSomething(t *testing.T) {
	d := document(few())
	d.Subject.Name, d.Subject.Root = "", "/srv/copies/a"
	for format, want := range map[string]string{
		"junit": `hostname="/srv/copies/a"`, "sarif": "kata-vfio-audit/node/srv_copies_a/", "ocsf": `"hostname":"/srv/copies/a"`,
		"md": "# Audit of `/srv/copies/a`", "table": "/srv/copies/a",
	} {
		if got := write(t, d, format, report.Options{}); !strings.Contains(got, want) {
			t.Errorf("%s has no %s:\n%.2000s", format, want, got)
		}
	}
	var b strings.Builder
	if err := report.WriteExplanation(&b, &d.Rules[0], d, "text", report.Options{}); err != nil || !strings.Contains(b.String(), "\nOn /srv/copies/a\n") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// What one waiver covers is told once; what another one does, and all of it where nothing is left out, each by itself.
func TestWaiverIsToldOnce(t *testing.T) {
	r := &finding.Report{Profile: "lab", Findings: []finding.Finding{}}
	for i, reason := range []string{"one segment", "one segment", "SEC-12", "one segment"} {
		a := pci.Address{Bus: 0x21, Device: uint8(i)}
		r.Findings = append(r.Findings, finding.Finding{
			ID: "NIC-003", Title: "VFs are in a VLAN", State: finding.Waived, Device: &a, Text: fmt.Sprintf("VF %d is in none", i),
			Waiver: &finding.Waiver{Rule: "NIC-003", Scope: "*", Until: "2027-03-31", Author: "alice", Reason: reason},
		})
	}
	r.Finish()
	d := &report.Document{Report: r}
	table := write(t, d, "table", report.Options{})
	const want = `
Accepted for a time
  NIC-003 VFs are in a VLAN: 0000:21:00.0, 0000:21:01.0, 0000:21:03.0
    accepted until 2027-03-31 by alice: one segment
  NIC-003 VFs are in a VLAN: 0000:21:02.0: VF 2 is in none
    accepted until 2027-03-31 by alice: SEC-12
`
	if !strings.Contains(table, want) {
		t.Errorf("the table is\n%s\nwant in it%s", table, want)
	}
	if wide := write(t, d, "wide", report.Options{}); strings.Count(wide, "accepted until") != 4 {
		t.Errorf("wide leaves some out:\n%s", wide)
	}
}

func TestFormatsReportAFailedWrite(t *testing.T) {
	for _, format := range report.Formats() {
		if err := report.Write(brokenPipe{}, document(few()), format, report.Options{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if err := report.Write(io.Discard, document(few()), "xml", report.Options{}); err == nil || fmt.Sprint(err) != "no such format: xml" {
		t.Errorf("an unknown format: %v", err)
	}
}

// TestHeadlineGoesByTheGate, as the exit code does: a failure that is less severe
// than --fail-on is told and is not a red verdict.
func TestHeadlineGoesByTheGate(t *testing.T) {
	medium := document(few()[1:2])
	for format, c := range map[string]struct{ below, at string }{
		"table": {"! gpu-07 passes at --fail-on high; less severe failures: 1 medium", "✗ gpu-07 fails: 1 medium"},
		"html":  {"Passes at severity high; less severe failures: 1 medium check", "Fails: 1 medium check"},
		"md":    {"passes at --fail-on high; less severe failures: 1 medium", "fails: 1 medium"},
		"json":  {`"verdict": "pass"`, `"verdict": "fail"`},
		"yaml":  {"verdict: pass", "verdict: fail"},
		"junit": {`failures="0"`, `failures="1"`},
	} {
		if got := write(t, medium, format, report.Options{FailOn: rule.High}); !strings.Contains(got, c.below) || strings.Contains(got, c.at) {
			t.Errorf("%s: a failure below the severity: %q is not there, or %q is", format, c.below, c.at)
		}
		if got := write(t, medium, format, report.Options{FailOn: rule.Medium}); !strings.Contains(got, c.at) {
			t.Errorf("%s: a failure at the severity: %q is not there", format, c.at)
		}
	}
}

// TestHeadlineIsUndetermined where nothing fails at --fail-on and a check could not tell, also if this check fails for another function.
func TestHeadlineIsUndetermined(t *testing.T) {
	low := finding.Finding{ID: "HOST-003", State: finding.Fail, Severity: rule.Low}
	for about, c := range map[string]struct {
		open          finding.Finding
		table, inPage string
	}{
		"another check": {
			finding.Finding{ID: "ACS-001", State: finding.Unknown, Severity: rule.High},
			"! gpu-07 is undetermined at --fail-on high: 1 check could not tell",
			"Undetermined at severity high: 1 check has no answer; less severe failures: 1 low check",
		},
		"the same check": {
			finding.Finding{ID: "HOST-003", State: finding.Error, Severity: rule.Low, Object: "another"},
			"! gpu-07 is undetermined at --fail-on high: 1 finding could not tell",
			"Undetermined at severity high: 1 finding has no answer; less severe failures: 1 low check",
		},
	} {
		for format, want := range map[string][]string{
			"table": {c.table}, "md": {strings.TrimPrefix(c.table, "! gpu-07 ")}, "json": {`"verdict": "unknown"`},
			"html": {c.inPage, `class="verdict is-unknown"`, "and checks without an answer do not prove that tenants are isolated"},
		} {
			got := write(t, document([]finding.Finding{low, c.open}), format, report.Options{FailOn: rule.High})
			for _, text := range want {
				if !strings.Contains(got, text) {
					t.Errorf("%s: %s lacks %q", about, format, text)
				}
			}
		}
	}
}

// TestTotalsAddUpToTheChecks that the headline counts, whatever the number of findings.
func TestTotalsAddUpToTheChecks(t *testing.T) {
	for about, d := range map[string]*report.Document{"few": document(few()), "many": document(many())} {
		sum, failed := 0, 0
		for _, n := range d.Summary.RuleStates {
			sum += n
		}
		for _, n := range d.Summary.FailedRules {
			failed += n
		}
		if sum != d.Summary.Rules || failed != d.Summary.RuleStates[finding.Fail] {
			t.Errorf("%s: %d checks, whose states add up to %d; %d fail, whose severities add up to %d", about, d.Summary.Rules, sum, d.Summary.RuleStates[finding.Fail], failed)
		}
	}
}
