package main

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// tables are the tables of the sample.
func tables(t *testing.T) map[string]*output.Table {
	t.Helper()
	s := sessionOf(client(append(sampleObjects(t), objectsOf(t, "testdata/parts.yaml")...)))
	c, _, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	v := s.statusView(&waiting{})
	v.want.also = append(v.want.also, fleet.Pods)
	state, err := v.list(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*output.Table{
		"devices": devicesPicture(state.Devices(), false).table(), "claims": claimsPicture(state.ClaimRows(), state.Now, true, false).table(),
		"audit": auditPicture(state.Audit(nil, all.OfNodes()), state.Now, false, false).table(), "status": nodesTable(state.Status()),
		"devices, wide": devicesPicture(state.Devices(), true).table(), "classes": offersTable(sampleOffers()),
		"quarantine": quarantinePicture(state.Devices(), state.Now).table(),
	}
}

// TestTablesFitTheTerminal: no line is longer than the terminal, which would break it, and each row can be told by its first column.
func TestTablesFitTheTerminal(t *testing.T) {
	for name, table := range tables(t) {
		for _, width := range []int{60, 80, 100, 120, 160} {
			lines := table.Lines(width, false)
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("%s at %d columns: a line has %d:\n%s", name, width, n, line)
				}
			}
			text := strings.Join(lines, "\n")
			for _, row := range table.Rows {
				if !strings.Contains(text, row[1].Text) {
					t.Errorf("%s at %d columns: no row of %s:\n%s", name, width, row[1].Text, text)
				}
			}
		}
		if testing.Verbose() {
			fmt.Println(strings.Join(table.Lines(100, false), "\n"))
		}
	}
}
