package rule_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func catalogue(t testing.TB) *rule.Catalogue {
	t.Helper()
	c, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withoutSource is how many rules name no source. Those are about kata-vfio's own files and objects.
const withoutSource = 6

// TestRulesAreComplete: each rule has all that a reader of its finding needs.
func TestRulesAreComplete(t *testing.T) {
	var without []string
	for _, r := range catalogue(t).Rules {
		if !strings.HasPrefix(r.Title, "Ensure that ") || strings.HasSuffix(r.Title, ".") {
			t.Errorf("%s: title %q, want \"Ensure that ...\" without its full stop", r.ID, r.Title)
		}
		if !strings.HasSuffix(r.Why, ".") {
			t.Errorf("%s: why %q, want sentences", r.ID, r.Why)
		}
		if r.Fix == "" || strings.HasSuffix(r.Fix, ".") {
			t.Errorf("%s: fix %q, want one without its full stop", r.ID, r.Fix)
		}
		if r.Verify == "" && r.ID != "RST-007" { // an errata document of the vendor, which no command shows
			t.Errorf("%s does not say how a person sees the same", r.ID)
		}
		if slices.Contains(r.Sources, "") {
			t.Errorf("%s: sources %q, want no empty one", r.ID, r.Sources)
		}
		if len(r.Sources) == 0 {
			without = append(without, r.ID)
		}
		if !slices.Contains(rule.Severities(), r.Severity) {
			t.Errorf("%s: severity %q, want one of %v", r.ID, r.Severity, rule.Severities())
		}
	}
	if len(without) > withoutSource {
		t.Errorf("%d rules have no source, want %d at most: a new rule names its source: %v", len(without), withoutSource, without)
	}
}

// TestEachGroupHasItsFile: the folder has one file for each group, with rules of no other group.
func TestEachGroupHasItsFile(t *testing.T) {
	entries, err := os.ReadDir("rules")
	if err != nil {
		t.Fatal(err)
	}
	var files, groups []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	for _, g := range rule.Groups() {
		if g.Letters != rule.OwnGroup {
			groups = append(groups, strings.ToLower(g.Letters)+".yaml")
		}
	}
	slices.Sort(groups)
	if !slices.Equal(files, groups) {
		t.Errorf("files %v, want %v", files, groups)
	}
	var order []string
	for _, r := range catalogue(t).Rules {
		order = append(order, r.Group())
	}
	if order = slices.Compact(order); len(order) != len(groups) {
		t.Errorf("rules are of the groups %v in this order, want each group once: a rule is in another group's file", order)
	}
}

// TestNumbersOfGroups: the IDs of a group are the numbers from 1, each once. What no check asks has one too, with its reason and a
// way to check by hand.
func TestNumbersOfGroups(t *testing.T) {
	c := catalogue(t)
	ids := rule.IDs(c.Rules)
	for _, not := range c.NotAsked {
		ids = append(ids, not.ID)
		if not.Title == "" || not.Why == "" || not.ByHand == "" {
			t.Errorf("%s lacks a text", not.ID)
		}
	}
	count := map[string]int{}
	for _, id := range ids {
		letters, _, _ := strings.Cut(id, "-")
		count[letters]++
	}
	for letters, n := range count {
		for i := 1; i <= n; i++ {
			want := fmt.Sprintf("%s-%03d", letters, i)
			if got := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id != want })); got != 1 {
				t.Errorf("%s is there %s times, want once: group %s has %d entries; a new one takes the next number", want, strconv.Itoa(got), letters, n)
			}
		}
	}
}

// TestCodesNameTheirChecks: each check that a text names exists and names the code, and the other way round. A rule that takes its fix
// from a code is one of them.
func TestCodesNameTheirChecks(t *testing.T) {
	c := catalogue(t)
	for _, text := range texts(t) {
		for _, id := range text.Checks {
			if r, ok := c.Rule(id); !ok || !slices.Contains(r.Codes, text.Code) {
				t.Errorf("%s names check %s; got %+v, want a rule that names the code", text.Code, id, r)
			}
		}
		for _, r := range c.Rules {
			if slices.Contains(r.Codes, text.Code) != slices.Contains(text.Checks, r.ID) {
				t.Errorf("%s has the codes %v, and %s the checks %v: want both or none", r.ID, r.Codes, text.Code, text.Checks)
			}
			if r.Code == text.Code && !slices.Contains(text.Checks, r.ID) {
				t.Errorf("%s has the checks %v, want %s among them", text.Code, text.Checks, r.ID)
			}
			if r.Code == text.Code && !strings.HasPrefix(r.Fix, text.Fix) {
				t.Errorf("%s: fix %q, want %q first", r.ID, r.Fix, text.Fix)
			}
		}
	}
}

func BenchmarkReadCatalogue(b *testing.B) {
	for b.Loop() {
		catalogue(b)
	}
}
