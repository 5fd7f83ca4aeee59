package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

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
