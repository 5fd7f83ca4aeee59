package output_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestTableAlignsWhatIsSeen: columns are as wide as what is shown of texts, colors take no room, and nothing ends in spaces.
func TestTableAlignsWhatIsSeen(t *testing.T) {
	table := &output.Table{Titles: []string{"A", "LONG", "C"}, Rows: [][]output.Cell{
		{{Text: "größer"}, {Text: "b", Color: output.Red}, {Text: "c"}},
		{{Text: "x\x1b"}, {}, {Text: "c"}},
		{{Text: "short"}},
	}}
	want := []string{"A        LONG   C", "größer   b      c", `x\x1b           c`, "short"}
	if diff := cmp.Diff(want, table.Lines(0, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	colored := table.Lines(0, true)
	if colored[1] != "größer   \x1b[31mb\x1b[0m      c" || !strings.HasPrefix(colored[0], "\x1b[1mA\x1b[0m        ") {
		t.Errorf("in colors:\n%q", colored)
	}
}

// TestTableGoesOn below what is written already: no column gets narrower.
func TestTableGoesOn(t *testing.T) {
	table := &output.Table{Titles: []string{"A", "B"}, Rows: [][]output.Cell{{{Text: "1234"}, {Text: "x"}}}}
	if diff := cmp.Diff([]int{6, 1}, table.Widths([]int{6, 0})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := output.Line([]output.Cell{{Text: "toolong"}, {Text: "x"}}, []int{3, 1}, false); got != "toolong   x" {
		t.Errorf("%q", got)
	}
}

// TestTableFitsTheTerminal: columns of prose are wrapped, down to 20 characters or the longest word.
func TestTableFitsTheTerminal(t *testing.T) {
	what := "a sentence of more than forty characters, and `a command in one` piece"
	table := &output.Table{Titles: []string{"NAME", "WHAT", "FIX"}, Rows: [][]output.Cell{
		{{Text: "a-long-name-without-spaces"}, {Text: what, Color: output.Red}, {Text: "do something"}},
		{{Text: "b"}, {Text: "short"}, {}},
	}}
	want := []string{
		"NAME                         WHAT                     FIX",
		"a-long-name-without-spaces   a sentence of more       do something",
		"                             than forty characters,",
		"                             and `a command in one`",
		"                             piece",
		"b                            short",
	}
	if diff := cmp.Diff(want, table.Lines(66, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, limit := range []int{0, 200} {
		if lines := table.Lines(limit, false); len(lines) != 3 || !strings.Contains(lines[1], what+"   do") {
			t.Errorf("limit %d: %q", limit, lines)
		}
	}
	columns := []string{"A   B", "1   " + what, "22"}
	if diff := cmp.Diff(columns, output.Columns([][]string{{"A", "B", ""}, {"1", what, ""}, {"22", "", ""}}, 0)); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}
