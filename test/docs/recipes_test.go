package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// mostFiles is how many files a newcomer changes for a check or a refusal, beside tests and generated files.
const mostFiles = 3

// TestRecipesNameWhatIsThere: CONTRIBUTING says in a few steps how to add a check and a refusal, and each place that it names exists.
func TestRecipesNameWhatIsThere(t *testing.T) {
	text := docs.Read(t, ".github/CONTRIBUTING.md")
	place := regexp.MustCompile("`(pkg/[a-z0-9/]+(?:\\.go|\\.yaml)?)`")
	for _, heading := range []string{"## Add a check to the audit\n", "## Add a refusal\n"} {
		_, recipe, ok := strings.Cut(text, heading)
		if !ok {
			t.Errorf("CONTRIBUTING has no section %q", heading)
			continue
		}
		recipe, _, _ = strings.Cut(recipe, "\n## ")
		files, _, _ := strings.Cut(recipe, "\n1. ")
		if n := len(place.FindAllString(files, -1)); n < 2 || n > mostFiles {
			t.Errorf("%q names %d files to change beside tests, want 2 to %d: %s", heading, n, mostFiles, files)
		}
		steps := regexp.MustCompile(`(?m)^\d\. `).FindAllString(recipe, -1)
		if len(steps) == 0 || len(steps) > 5 {
			t.Errorf("%q has %d steps, want five at most", heading, len(steps))
		}
		var places []string
		for _, m := range place.FindAllStringSubmatch(recipe, -1) {
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("%q names %s: %v", heading, m[1], err)
			}
			if !slices.Contains(places, m[1]) {
				places = append(places, m[1])
			}
		}
		if len(places) < 2 {
			t.Errorf("%q names %v, want the places to change", heading, places)
		}
	}
}

// TestRecipesAreEnough: the recipes' files are enough for nearly all checks that there are, and for half of the codes. What commands and
// mappings say of a check or code in addition is no part of it.
func TestRecipesAreEnough(t *testing.T) {
	catalogue, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	sources := productSources(t)
	files := filesByWord(sources, regexp.MustCompile(`\b([A-Z][A-Z0-9]+-\d{3})\b`))
	enough(t, "checks", rule.IDs(catalogue.Rules), files, 90)
	var codes []string
	for _, text := range texts {
		codes = append(codes, string(text.Code))
	}
	enough(t, "refusals", codes, filesByWord(sources, regexp.MustCompile(`(?m)(?:\brule\.|^- code: |^\t)(\w+)(?: Code = |\b)`)), 50)
}

// enough checks that so many of a hundred are in mostFiles at most.
func enough(t *testing.T, about string, words []string, files map[string]int, want int) {
	t.Helper()
	few := 0
	for _, word := range words {
		if n := files[word]; n >= 2 && n <= mostFiles {
			few++
		}
	}
	if got := 100 * few / len(words); got < want {
		t.Errorf("%d of 100 %s are in %d files at most, want %d", got, about, mostFiles, want)
	}
}

// productSources returns the text of the files that are written by hand and decide, by name.
func productSources(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	err := filepath.WalkDir("../../pkg", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(name, "audit/finding")):
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(name, "_test.go"), filepath.Ext(name) != ".go" && filepath.Ext(name) != ".yaml":
			return nil
		}
		content, err := os.ReadFile(name)
		if !strings.Contains(string(content[:min(len(content), 200)]), "DO NOT EDIT") {
			sources[name] = string(content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// filesByWord counts the files that have each word.
func filesByWord(sources map[string]string, word *regexp.Regexp) map[string]int {
	files := map[string]int{}
	for _, text := range sources {
		once := map[string]bool{}
		for _, m := range word.FindAllStringSubmatch(text, -1) {
			once[m[1]] = true
		}
		for found := range once {
			files[found]++
		}
	}
	return files
}
