package report_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

func printed(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// framework is a small one.
func framework() *finding.Framework {
	return &finding.Framework{ID: "f-1", Title: "Framework", Version: "1", Controls: []finding.Control{
		{Control: "A-1", Title: "Separation | isolation", Strength: finding.Direct, Rules: []string{"ACS-*", "IOM-001"}, Rationale: "it is the same thing"},
		{Control: "A-2", Title: "Logs", Strength: finding.Supporting, Rules: []string{"OBS-001"}, Rationale: "there is a log"},
	}}
}

func profiles() []finding.Profile {
	return []finding.Profile{{Name: "strict", About: "all counts"}, {Name: "loose", About: "less counts", Severities: map[string]rule.Severity{
		"ACS-001": rule.Low, "IOM-001": rule.Low, "RST-001": finding.Off, "GPU-005": rule.Critical,
	}}}
}

func TestCatalogueGolden(t *testing.T) {
	rules := sampleRules()[:4]
	all, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for format, extension := range map[string]string{"table": "txt", "json": "json", "yaml": "yaml", "md": "md"} {
		golden.Compare(t, "catalogue."+extension, printed(t, func(w io.Writer) error {
			return report.WriteCatalogue(w, &rule.Catalogue{Rules: rules, NotAsked: all.NotAsked}, format, report.Options{})
		}))
		golden.Compare(t, "mapping."+extension, printed(t, func(w io.Writer) error { return report.WriteMapping(w, framework(), rules, format, report.Options{}) }))
	}
	for format, extension := range map[string]string{"text": "txt", "json": "json", "yaml": "yaml", "md": "md"} {
		golden.Compare(t, "explain."+extension, printed(t, func(w io.Writer) error { return report.WriteExplanation(w, &rules[3], nil, format, report.Options{}) }))
		node := document(few()[:1])
		golden.Compare(t, "explain-node."+extension, printed(t, func(w io.Writer) error { return report.WriteExplanation(w, &rules[3], node, format, report.Options{}) }))
	}
	for format, extension := range map[string]string{"table": "txt", "json": "json", "yaml": "yaml"} {
		golden.Compare(t, "profiles."+extension, printed(t, func(w io.Writer) error { return report.WriteProfiles(w, profiles(), format, report.Options{}) }))
	}
}

// TestCatalogueHasNoNull: lists of machines are empty, not null.
func TestCatalogueHasNoNull(t *testing.T) {
	bare := []rule.Rule{{ID: "XYZ-001", Title: "x", Severity: rule.Low}}
	for _, text := range []string{
		printed(t, func(w io.Writer) error {
			return report.WriteCatalogue(w, &rule.Catalogue{Rules: bare, NotAsked: []rule.NotAsked{}}, "json", report.Options{})
		}),
		printed(t, func(w io.Writer) error {
			return report.WriteCatalogue(w, &rule.Catalogue{NotAsked: []rule.NotAsked{}}, "json", report.Options{})
		}),
		printed(t, func(w io.Writer) error {
			return report.WriteMapping(w, &finding.Framework{}, nil, "json", report.Options{})
		}),
		printed(t, func(w io.Writer) error { return report.WriteMapping(w, framework(), nil, "json", report.Options{}) }),
		printed(t, func(w io.Writer) error {
			return report.WriteExplanation(w, &bare[0], document(nil), "json", report.Options{})
		}),
	} {
		if !json.Valid([]byte(text)) || bytes.Contains([]byte(text), []byte("null")) {
			t.Errorf("null:\n%s", text)
		}
	}
}

// TestExplanationObeysNothing of what the node says.
func TestExplanationObeysNothing(t *testing.T) {
	for _, format := range report.ExplainFormats() {
		out := printed(t, func(w io.Writer) error {
			return report.WriteExplanation(w, &sampleRules()[0], document([]finding.Finding{hostileFinding()}), format, report.Options{})
		})
		obeyedIn(t, format, out)
	}
}
