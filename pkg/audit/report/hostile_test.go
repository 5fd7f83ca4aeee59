package report_test

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// hostile is a finding whose texts try everything.
func hostileFinding() finding.Finding {
	evil := evilText()
	return finding.Finding{
		ID: "IOM-001", Title: "The node has an IOMMU", State: finding.Fail, Severity: rule.High, Exposure: finding.CrossTenant,
		Device: at("0000:3b:00.0"), Devices: located("0000:3b:00.0", "0000:41:00.0"), Object: evil, Tenants: []string{evil, "=cmd()"}, Text: evil,
		Pending: evil, Remediation: evil, Verify: evil,
		Evidence: []rule.Evidence{{Path: "/../.." + evil, Value: evil, How: evil, Error: evil, Needs: evil}},
		Waiver:   &finding.Waiver{Rule: evil, Scope: evil, Until: evil, Reason: evil, Author: evil, Expired: true},
	}
}

func evilText() string {
	return "=HYPERLINK(\"http://evil\")\x1b[2J\u009b31m\x1b]8;;http://evil\x1b\\x\u202e\u2066\x07\n\r\x00\x7f\xff`|*_[a](b)<script>alert(1)</script>]]>&amp;"
}

// TestNothingFromTheNodeIsObeyed in any format.
func TestNothingFromTheNodeIsObeyed(t *testing.T) {
	d := document([]finding.Finding{hostileFinding()})
	d.Subject.Kernel, d.Subject.BootID = evilText(), evilText()
	for _, format := range report.Formats() {
		obeyedIn(t, format, write(t, d, format, report.Options{}))
	}
}

// obeyedIn fails the test for each character of an output that a terminal would obey.
func obeyedIn(t *testing.T, format, out string) {
	t.Helper()
	for _, r := range out {
		if r != '\n' && output.Obeyed(r) {
			t.Errorf("%s writes %U", format, r)
		}
	}
	if !utf8.ValidString(out) {
		t.Errorf("%s is no UTF-8", format)
	}
}

// TestReportMakesControlCharactersVisible also covers fields that are added later.
func TestReportMakesControlCharactersVisible(t *testing.T) {
	d := document([]finding.Finding{{Device: at("0000:3b:00.0"), Waiver: &finding.Waiver{}, Evidence: []rule.Evidence{{}}, Tenants: []string{""}}})
	poison(reflect.ValueOf(d.Report).Elem())
	var b bytes.Buffer
	if err := report.Write(&b, d, "yaml", report.Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\u202e") || strings.Contains(b.String(), `\e`) || !strings.Contains(b.String(), `\x1b`) {
		t.Errorf("a text is as it came:\n%s", b.String())
	}
}

// poison sets all strings below v.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("\x1b[2J\u202e")
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[finding.Summary]() {
			return // states and severities are keys there
		}
		for _, field := range v.Fields() {
			poison(field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	}
}

func TestCSVHasNoFormula(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(write(t, document(append(few(), hostileFinding())), "csv", report.Options{}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(few())+2 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		for i, cell := range row {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") || strings.Contains(cell, "\n") {
				t.Errorf("column %s: %q", rows[0][i], cell)
			}
		}
	}
}

func TestMarkdownHasNoMarkupOfTheNode(t *testing.T) {
	plain := withoutCode(write(t, document([]finding.Finding{hostileFinding()}), "md", report.Options{}))
	if strings.ContainsAny(plain, "<") || strings.Contains(plain, "[a]") || !strings.Contains(plain, `\[a\](b)&lt;script&gt;`) {
		t.Errorf("markup of the node outside of code:\n%s", plain)
	}
}

// withoutCode drops the code spans of Markdown: from a run of backticks that no
// backslash precedes to the next one of that length (CommonMark 6.1).
func withoutCode(text string) string {
	var plain strings.Builder
	for text != "" {
		i := regexp.MustCompile("(^|[^\\\\])(\\\\\\\\)*`+").FindStringIndex(text)
		if i == nil {
			break
		}
		start := strings.IndexByte(text[i[0]:i[1]], '`') + i[0]
		fence := text[start:i[1]]
		end := regexp.MustCompile("[^`]" + fence + "($|[^`])").FindStringIndex(text[i[1]:])
		if end == nil {
			break
		}
		plain.WriteString(text[:start] + "CODE")
		text = text[i[1]+end[0]+1+len(fence):]
	}
	return plain.String() + text
}
