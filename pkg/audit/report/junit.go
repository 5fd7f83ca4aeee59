package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// JUnit XML as CI systems read it. Time is always 0: how long a check takes says
// nothing.
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

func writeJUnit(w io.Writer, d *Document) error {
	suites := junitSuites{Name: "kata-vfio-audit " + d.Subject.Label(), junitCounts: junitCounts{Time: "0"}}
	for _, g := range finding.Groups() {
		suite := junitSuite{
			Name: g.Letters + ": " + g.Title, Hostname: d.Subject.Label(),
			Timestamp: strings.TrimSuffix(d.Subject.Time, "Z"), junitCounts: junitCounts{Time: "0"},
		}
		for i := range d.Findings {
			f := &d.Findings[i]
			if (&finding.Rule{ID: f.ID}).Group() == g.Letters {
				suite.add(junitCaseOf(f))
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

// junitCaseOf has what could not be told skipped, not passed: JUnit knows no other
// word for it.
func junitCaseOf(f *finding.Finding) junitCase {
	c := junitCase{Class: f.ID, Name: f.Title, Time: "0"}
	if f.Device != nil || f.Object != "" {
		c.Name += " [" + about(f) + "]"
	}
	result := &junitResult{Message: fmt.Sprintf("%s: %s", f.State, f.Text)}
	switch f.State {
	case finding.Fail:
		result.Message, result.Type, result.Text = f.Text, string(f.Severity), junitText(f)
		c.Failure = result
	case finding.Error:
		result.Type = string(finding.Error)
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
