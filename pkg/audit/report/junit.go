package report

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// JUnit XML as CI systems read it. Time is always 0, because the duration of a check has no meaning.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string `xml:"name,attr"`
		Hostname  string `xml:"hostname,attr"`
		Timestamp string `xml:"timestamp,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Time    string       `xml:"time,attr"`
		Failure *junitResult `xml:"failure"`
		Error   *junitResult `xml:"error"`
		Skipped *junitResult `xml:"skipped"`
	}
	junitResult struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",cdata"`
	}
)

// writeJUnit reports as skipped what does not make the run fail, such as failures that are less severe than o.FailOn.
func writeJUnit(w io.Writer, d *Document, o *Options) error {
	suites := junitSuites{Name: "kata-vfio-audit " + d.Subject.Label(), junitCounts: junitCounts{Time: "0"}}
	for _, g := range rule.Groups() {
		suite := junitSuite{
			Name: g.Letters + ": " + g.Title, Hostname: d.Subject.Label(),
			// The schema's time has no zone (JUnit.xsd, ISO8601_DATETIME_PATTERN).
			Timestamp: strings.TrimSuffix(d.Subject.Time, "Z"), junitCounts: junitCounts{Time: "0"},
		}
		for i := range d.Findings {
			f := &d.Findings[i]
			if (&rule.Rule{ID: f.ID}).Group() == g.Letters {
				suite.add(newJUnitCase(f, o))
			}
		}
		if suite.Tests > 0 {
			suites.add(&suite)
		}
	}
	text, err := xml.MarshalIndent(suites, "", "  ")
	if err == nil {
		_, err = io.WriteString(w, xml.Header+string(text)+"\n")
	}
	if err != nil {
		return fmt.Errorf("write report as JUnit: %w", err)
	}
	return nil
}

func (s *junitSuites) add(suite *junitSuite) {
	s.Suites = append(s.Suites, *suite)
	s.Tests += suite.Tests
	s.Failures += suite.Failures
	s.Errors += suite.Errors
	s.Skipped += suite.Skipped
}

func (s *junitSuite) add(c junitCase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// newJUnitCase reports an unknown finding as skipped, not passed; as an error if it makes the run fail. JUnit has no other word for it.
func newJUnitCase(f *finding.Finding, o *Options) junitCase {
	c := junitCase{Class: f.ID, Name: f.Title, Time: "0"}
	if f.Device != nil || f.Object != "" {
		c.Name += " [" + about(f) + "]"
	}
	result := &junitResult{Message: fmt.Sprintf("%s: %s", f.State, f.Text)}
	switch f.State {
	case finding.Fail:
		if !f.FailsAt(o.FailOn) {
			result.Message = fmt.Sprintf("fails with severity %s, less severe than %s: %s", f.Severity, o.FailOn, f.Text)
			c.Skipped = result
			break
		}
		result.Message, result.Type, result.Text = f.Text, string(f.Severity), junitText(f)
		c.Failure = result
	case finding.Error:
		result.Type = string(finding.Error)
		c.Error = result
	case finding.Unknown:
		if !o.Strict {
			c.Skipped = result
			break
		}
		result.Type = string(finding.Unknown)
		c.Error = result
	case finding.Pass:
	case finding.Waived:
		result.Message = fmt.Sprintf("waived, %s: %s", waiverWords(f.Waiver), f.Text)
		c.Skipped = result
	default:
		c.Skipped = result
	}
	return c
}

func junitText(f *finding.Finding) string {
	lines := []string{"", "severity: " + string(f.Severity), "exposure: " + string(f.Exposure)}
	for _, p := range []struct{ name, value string }{
		{"in reach", strings.Join(addresses(f), ", ")},
		{"tenants", strings.Join(f.Tenants, ", ")},
		{"next boot", f.Pending},
		{"fix", f.Remediation},
		{"by hand", f.Verify},
	} {
		if p.value != "" {
			lines = append(lines, p.name+": "+p.value)
		}
	}
	for _, e := range f.Evidence {
		lines = append(lines, "evidence: "+evidenceWords(&e))
	}
	return strings.Join(lines, "\n") + "\n"
}

// columns are those of the CSV form; their names are stable.
func columns() []string {
	return []string{
		"id", "title", "state", "severity", "exposure", "device", "object", "devices", "tenants", "text", "pending",
		"remediation", "verify", "evidence", "waiver_until", "waiver_author", "waiver_reason",
		"node", "boot_id", "time", "profile",
	}
}

func writeCSV(w io.Writer, d *Document) error {
	out := csv.NewWriter(w)
	rows := [][]string{columns()}
	for i := range d.Findings {
		f := &d.Findings[i]
		var seen []string
		for _, e := range f.Evidence {
			seen = append(seen, evidenceWords(&e))
		}
		waiver := finding.Waiver{}
		if f.Waiver != nil {
			waiver = *f.Waiver
		}
		rows = append(rows, harmless([]string{
			f.ID, f.Title, string(f.State), string(f.Severity), string(f.Exposure), address(f), f.Object,
			strings.Join(addresses(f), " "), strings.Join(f.Tenants, " "), f.Text, f.Pending,
			f.Remediation, f.Verify, strings.Join(seen, "; "), waiver.Until, waiver.Author, waiver.Reason,
			d.Subject.Name, d.Subject.BootID, d.Subject.Time, d.Profile,
		}))
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("write report as CSV: %w", err)
	}
	return nil
}

// harmless prevents a spreadsheet from reading cells as formulas: a leading apostrophe makes them text (OWASP, CSV
// injection).
func harmless(cells []string) []string {
	for i, cell := range cells {
		if strings.IndexAny(strings.TrimLeft(cell, " "), "=+-@＝＋－＠") == 0 {
			cells[i] = "'" + cell
		}
	}
	return cells
}
