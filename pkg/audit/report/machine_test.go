package report_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
)

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
	for _, findings := range [][]finding.Finding{few(), many(), nil, {hostileFinding()}, append(few(), few()...)} {
		text := write(t, document(findings), "sarif", report.Options{})
		if empty := strings.ReplaceAll(text, `"results": []`, ""); strings.Contains(empty, "[]") || strings.Contains(empty, "{}") || strings.Contains(empty, "null") {
			t.Errorf("%d findings: there are empty values in %s", len(findings), text)
		}
		log, err := sarif.FromString(text) // which makes up the arrays that the library's validation requires
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
			if r.Kind != "fail" || r.Level == "none" {
				t.Errorf("%s: kind %s with level %s", *r.RuleID, r.Kind, r.Level)
			}
			if uri := *r.Locations[0].PhysicalLocation.ArtifactLocation.URI; !strings.HasPrefix(uri, "node/gpu-07/") || strings.Contains(uri+"/", "/../") {
				t.Errorf("%s: URI %s", *r.RuleID, uri)
			}
			if waived := r.Properties.Properties["state"] == "waived"; waived != (len(r.Suppressions) > 0) {
				t.Errorf("%s: suppressions %v", *r.RuleID, r.Suppressions)
			}
		}
		failures := slices.DeleteFunc(slices.Clone(findings), func(f finding.Finding) bool { return f.State != finding.Fail && f.State != finding.Waived })
		if len(prints) != len(failures) {
			t.Errorf("%d fingerprints for %d failures", len(prints), len(failures))
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
