package output_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestNarrowTerminal: columns go in their order, then rows become lists, unless the terminal cuts lines.
func TestNarrowTerminal(t *testing.T) {
	table := &output.Table{
		Titles: []string{"NAME", "ROOT", "STATE"}, Least: []string{"ROOT", "GONE"},
		Rows: [][]output.Cell{{{Text: "a-long-name"}, {Text: "pci0000:3a"}, {Text: "free"}}, {{Text: "b"}, {Text: "-"}, {Text: "claimed"}}},
	}
	cut := *table
	cut.Cut = true
	path := &output.Table{Titles: []string{"FILE", "STATUS"}, Rows: [][]output.Cell{{{Text: "/etc/a/long/path"}, {Text: "create"}}}}
	for name, tt := range map[string]struct {
		table *output.Table
		limit int
		want  string
	}{
		"no limit":      {table, 0, "NAME          ROOT         STATE\na-long-name   pci0000:3a   free\nb             -            claimed"},
		"room for all":  {table, 34, "NAME          ROOT         STATE\na-long-name   pci0000:3a   free\nb             -            claimed"},
		"one goes":      {table, 33, "NAME          STATE\na-long-name   free\nb             claimed\n\nleft out, as the terminal is too\nnarrow: ROOT"},
		"lists":         {table, 20, "NAME   a-long-name\nSTATE  free\n\nNAME   b\nSTATE  claimed\n\nleft out, as the\nterminal is too\nnarrow: ROOT"},
		"a long word":   {path, 20, "FILE\n  /etc/a/long/path\nSTATUS  create"},
		"lines are cut": {&cut, 20, "NAME          STATE\na-long-name   free\nb             claimed"},
	} {
		if diff := cmp.Diff(tt.want, strings.Join(tt.table.Lines(tt.limit, false), "\n")); diff != "" {
			t.Errorf("%s: the lines differ (-want +got):\n%s", name, diff)
		}
	}
}
