package output_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestTreeFitsTheTerminal: no line is longer than the terminal, no word is lost, and without a limit each text is one line.
func TestTreeFitsTheTerminal(t *testing.T) {
	text := strings.TrimSuffix(strings.Repeat("0000:3b:00.0 is not isolated; ", 8), " ")
	roots := []output.Branch{{Text: text, Below: []output.Branch{{Text: text, Below: []output.Branch{{Text: text}}}, {Text: text}}}}
	for _, limit := range []int{0, 80, 100, 120, 160} {
		var b strings.Builder
		if err := output.WriteTree(&b, roots, limit, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(), "0000:3b:00.0"); got != 4*8 {
			t.Errorf("at %d columns: %d words, want %d:\n%s", limit, got, 4*8, &b)
		}
		if got := strings.Count(b.String(), "\n"); limit == 0 && got != 4 {
			t.Errorf("without a limit: %d lines, want 4:\n%s", got, &b)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); limit > 0 && n > limit {
				t.Errorf("at %d columns: a line has %d: %s", limit, n, line)
			}
		}
	}
}
