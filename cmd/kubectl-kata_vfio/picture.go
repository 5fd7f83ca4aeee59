package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// picture is a state as it is shown: a table, or a drawing, and the same for programs.
type picture struct {
	// what names the document in errors, and one of its rows in a stream.
	what     string
	document any
	titles   []string
	rows     []row
	// drawing takes the place of the table.
	drawing []topology.Branch
	// empty is said for people where there is no row.
	empty string
}

// row is one line of a table.
type row struct {
	// key says which row it is from one state to the next.
	key   string
	cells []terminal.Cell
	value any
}

// cells are cells without colours.
func cells(texts ...string) []terminal.Cell {
	all := make([]terminal.Cell, len(texts))
	for i, t := range texts {
		all[i].Text = t
	}
	return all
}

func (p *picture) table() *terminal.Table {
	t := &terminal.Table{Titles: p.titles}
	for i := range p.rows {
		t.Rows = append(t.Rows, p.rows[i].cells)
	}
	return t
}

// lines is the picture for people.
func (p *picture) lines(color bool) []string {
	switch {
	case len(p.drawing) > 0:
		var b strings.Builder
		_ = topology.WriteTree(&b, p.drawing, color) // a builder takes everything
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	case len(p.rows) == 0:
		return []string{p.empty}
	}
	return p.table().Lines(color)
}

// print writes the picture once.
func (p *picture) print(w io.Writer, format string) error {
	switch format {
	case "json":
		return encode.JSON(w, p.what, p.document)
	case "yaml":
		return encode.YAML(w, p.what, p.document)
	}
	return writeLines(w, p.lines(terminal.Colorful(w)))
}

func writeLines(w io.Writer, lines []string) error {
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
