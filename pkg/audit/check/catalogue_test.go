package check_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
)

var update = flag.Bool("update", false, "rewrite CATALOGUE.md")

// allRules are those of nodes and of clusters.
func allRules() []finding.Rule {
	var rules []finding.Rule
	for _, c := range check.Catalogue() {
		rules = append(rules, c.Rule)
	}
	return append(rules, cluster.Rules()...)
}

// TestCatalogueIsWrittenDown: CATALOGUE.md says what the checks say of themselves.
func TestCatalogueIsWrittenDown(t *testing.T) {
	var b bytes.Buffer
	if err := report.WriteCatalogue(&b, allRules(), "md"); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("CATALOGUE.md", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile("CATALOGUE.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(written), b.String()); diff != "" {
		t.Errorf("CATALOGUE.md is out of date; write it anew with `go test ./pkg/audit/check -run Catalogue -update` (-written +now):\n%s", diff)
	}
}

// TestRulesAreWhole: each has all that a reader of its finding needs.
func TestRulesAreWhole(t *testing.T) {
	groups := map[string]bool{}
	for _, g := range finding.Groups() {
		groups[g.Letters] = true
	}
	seen := map[string]bool{}
	for _, r := range allRules() {
		if r.Title == "" || r.Why == "" || r.Fix == "" || r.Severity == "" {
			t.Errorf("%s lacks a text", r.ID)
		}
		if seen[r.ID] || !groups[r.Group()] {
			t.Errorf("%s is there twice, or of no group", r.ID)
		}
		seen[r.ID] = true
	}
}
