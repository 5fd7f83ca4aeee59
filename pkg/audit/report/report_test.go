package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

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
		name := extension[format]
		if name == "" {
			name = format
		}
		golden(t, "few."+name, write(t, document(few()), format, report.Options{}))
	}
	golden(t, "many.txt", write(t, document(many()), "table", report.Options{}))
	golden(t, "color.txt", write(t, document(few()), "table", report.Options{Color: true}))
	golden(t, "high.txt", write(t, document(many()), "table", report.Options{Show: isolation.High}))
	golden(t, "clean.txt", write(t, document(few()[2:3]), "table", report.Options{}))
	golden(t, "undetermined.txt", write(t, document(few()[2:7]), "table", report.Options{}))
}

func TestTableKeepsToThePage(t *testing.T) {
	for _, findings := range [][]finding.Finding{few(), many()} {
		for text := range strings.Lines(write(t, document(findings), "table", report.Options{})) {
			text = strings.TrimSuffix(text, "\n")
			if n := utf8.RuneCountInString(text); n > terminal.PageWidth || strings.TrimRight(text, " ") != text {
				t.Errorf("%d columns: %q", n, text)
			}
		}
	}
}

func TestColorAddsNothingButColor(t *testing.T) {
	colored := write(t, document(many()), "table", report.Options{Color: true})
	plain := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, "")
	if plain == colored {
		t.Error("no colour at all")
	}
	if diff := cmp.Diff(write(t, document(many()), "table", report.Options{}), plain); diff != "" {
		t.Errorf("(-plain +colored):\n%s", diff)
	}
}

// TestSeverityFiltersAllFormats: what is less severe is in none of them, and the
// summary counts it all the same.
func TestSeverityFiltersAllFormats(t *testing.T) {
	for _, format := range report.Formats() {
		allOf, some := write(t, document(many()), format, report.Options{}), write(t, document(many()), format, report.Options{Show: isolation.High})
		if !strings.Contains(allOf, "object of VFIO-015") || strings.Contains(some, "object of VFIO-015") || !strings.Contains(some, "object of RT-025") {
			t.Errorf("%s: the filter does not work", format)
		}
	}
	var doc finding.Report
	if err := json.Unmarshal([]byte(write(t, document(many()), "json", report.Options{Show: isolation.High})), &doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document(many()).Summary, doc.Summary); diff != "" {
		t.Errorf("summary (-whole +filtered):\n%s", diff)
	}
}

// TestJSONContract pins the names that other programs read.
func TestJSONContract(t *testing.T) {
	var doc struct {
		Findings []map[string]any
		Summary  map[string]any
		Subject  map[string]any
		Profile  string
	}
	if err := json.Unmarshal([]byte(write(t, document(few()), "json", report.Options{})), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Findings) != len(few()) || doc.Profile != "multi-tenant" || doc.Subject["name"] != "gpu-07" || doc.Summary["verdict"] != "fail" {
		t.Errorf("%d findings, profile %q, subject %v, summary %v", len(doc.Findings), doc.Profile, doc.Subject, doc.Summary)
	}
	for _, f := range doc.Findings {
		for _, key := range []string{"id", "title", "state", "severity", "exposure", "devices", "tenants", "text", "remediation", "verify", "evidence"} {
			if f[key] == nil {
				t.Errorf("%s lacks %s, or it is null", f["id"], key)
			}
		}
	}
	first := doc.Findings[0]
	if first["device"] != "0000:3b:00.0" || first["state"] != "fail" || first["exposure"] != "cross-tenant" || first["severity"] != "critical" {
		t.Errorf("the first is %v", first)
	}
	empty := write(t, document(nil), "json", report.Options{})
	if strings.Contains(empty, "null") || !strings.Contains(empty, `"findings": []`) {
		t.Errorf("an empty report has null:\n%s", empty)
	}
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	fromYAML, err := yaml.YAMLToJSON([]byte(write(t, document(few()), "yaml", report.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(fromYAML, &a), json.Unmarshal([]byte(write(t, document(few()), "json", report.Options{})), &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("(-json +yaml):\n%s", diff)
	}
}

func TestNDJSONHasAFindingALine(t *testing.T) {
	d := document(few())
	i := 0
	for text := range strings.Lines(write(t, d, "ndjson", report.Options{})) {
		var got struct {
			Subject finding.Subject
			Profile string
			finding.Finding
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d.Findings[i], got.Finding); diff != "" || got.Subject != d.Subject || got.Profile != d.Profile {
			t.Errorf("line %d of %v, %s (-want +got):\n%s", i, got.Subject, got.Profile, diff)
		}
		i++
	}
	if i != len(d.Findings) {
		t.Errorf("%d lines for %d findings", i, len(d.Findings))
	}
}

func TestSARIFIsValid(t *testing.T) {
	for _, findings := range [][]finding.Finding{few(), many(), nil, {hostile()}} {
		log, err := sarif.FromString(write(t, document(findings), "sarif", report.Options{}), sarif.WithStrictValidation())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Validate(); err != nil {
			t.Errorf("%d findings: %v", len(findings), err)
		}
		prints := map[string]bool{}
		for _, r := range log.Runs[0].Results {
			prints[r.PartialFingerprints["kataVfioFinding/v1"]] = true
			if rule := log.Runs[0].Tool.Driver.Rules[r.RuleIndex]; *rule.ID != *r.RuleID {
				t.Errorf("a result of %s refers to the rule %s", *r.RuleID, *rule.ID)
			}
			if (r.Kind == "fail") != (r.Level != "none") {
				t.Errorf("%s: kind %s with level %s", *r.RuleID, r.Kind, r.Level)
			}
			if uri := *r.Locations[0].PhysicalLocation.ArtifactLocation.URI; !strings.HasPrefix(uri, "node/gpu-07/") || strings.Contains(uri+"/", "/../") {
				t.Errorf("%s: URI %s", *r.RuleID, uri)
			}
			if waived := r.Properties.Properties["state"] == "waived"; waived != (len(r.Suppressions) > 0) {
				t.Errorf("%s: suppressions %v", *r.RuleID, r.Suppressions)
			}
		}
		if len(prints) != len(findings) {
			t.Errorf("%d fingerprints for %d findings", len(prints), len(findings))
		}
	}
}

func TestJUnitCountsItsCases(t *testing.T) {
	type counts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	var suites struct {
		counts
		Suites []struct {
			counts
			Cases []struct {
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(write(t, document(few()), "junit", report.Options{})), &suites); err != nil {
		t.Fatal(err)
	}
	var sum, cases counts
	for _, s := range suites.Suites {
		sum.Tests, sum.Failures, sum.Errors, sum.Skipped = sum.Tests+s.Tests, sum.Failures+s.Failures, sum.Errors+s.Errors, sum.Skipped+s.Skipped
		for _, c := range s.Cases {
			cases.Tests++
			switch {
			case c.Failure != nil:
				cases.Failures++
			case c.Error != nil:
				cases.Errors++
			case c.Skipped != nil:
				cases.Skipped++
			}
		}
	}
	want := counts{Tests: 10, Failures: 2, Errors: 1, Skipped: 6}
	for _, got := range []counts{suites.counts, sum, cases} {
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// hostile is a finding whose texts try everything.
func hostile() finding.Finding {
	evil := evilText()
	return finding.Finding{
		ID: "IOM-001", Title: "The node has an IOMMU", State: finding.Fail, Severity: isolation.High, Exposure: finding.CrossTenant,
		Device: at("0000:3b:00.0"), Devices: all("0000:3b:00.0", "0000:41:00.0"), Object: evil, Tenants: []string{evil, "=cmd()"}, Text: evil,
		Pending: evil, Remediation: evil, Verify: evil,
		Evidence: []finding.Evidence{{Path: "/../.." + evil, Value: evil, How: evil, Error: evil, Needs: evil}},
		Waiver:   &finding.Waiver{Rule: evil, Scope: evil, Until: evil, Reason: evil, Author: evil, Expired: true},
	}
}

func evilText() string {
	return "=HYPERLINK(\"http://evil\")\x1b[2J\u009b31m\x1b]8;;http://evil\x1b\\x\u202e\u2066\x07\n\r\x00\x7f\xff`|*_[a](b)<script>alert(1)</script>]]>&amp;"
}

// TestNothingFromTheNodeIsObeyed, whatever the format.
func TestNothingFromTheNodeIsObeyed(t *testing.T) {
	d := document([]finding.Finding{hostile()})
	d.Subject.Kernel, d.Subject.BootID = evilText(), evilText()
	for _, format := range report.Formats() {
		out := write(t, d, format, report.Options{})
		for _, r := range out {
			if r != '\n' && terminal.Obeyed(r) {
				t.Errorf("%s writes %U", format, r)
			}
		}
		if !utf8.ValidString(out) {
			t.Errorf("%s is no UTF-8", format)
		}
	}
}

// TestEveryTextIsMadeVisible finds one that a new field brings.
func TestEveryTextIsMadeVisible(t *testing.T) {
	d := document([]finding.Finding{{Device: at("0000:3b:00.0"), Waiver: &finding.Waiver{}, Evidence: []finding.Evidence{{}}, Tenants: []string{""}}})
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
		for i := range v.NumField() {
			poison(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	}
}

func TestCSVHasNoFormula(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(write(t, document(append(few(), hostile())), "csv", report.Options{}))).ReadAll()
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
	plain := withoutCode(write(t, document([]finding.Finding{hostile()}), "md", report.Options{}))
	if strings.ContainsAny(plain, "<") || strings.Contains(plain, "[a]") || !strings.Contains(plain, `\[a\]\(b\)&lt;script&gt;`) {
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

// brokenPipe fails as a closed pipe does.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

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
