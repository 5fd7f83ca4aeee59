package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// screen shows pictures one after the other.
type screen interface {
	show(*picture) error
}

// newScreen returns a screen that redraws a terminal, or appends to any other output.
func newScreen(w io.Writer, format string) screen {
	switch file, isFile := w.(*os.File); {
	case format == "json":
		return &stream{to: w}
	case isFile && output.Is(w) && os.Getenv("TERM") != "dumb":
		return &redrawn{to: file}
	}
	return &appended{to: w}
}

// redrawn is a terminal, where each picture takes the place of the one before.
type redrawn struct{ to *os.File }

// Escape sequences (ECMA-48, and DEC's for lines that end at the edge).
const (
	clear    = "\x1b[H\x1b[2J"
	wrapOff  = "\x1b[?7l"
	wrapOn   = "\x1b[?7h"
	fewLines = 24
)

func (r *redrawn) show(p *picture) error {
	height := fewLines
	if _, rows, err := term.GetSize(int(r.to.Fd())); err == nil && rows > 2 {
		height = rows
	}
	p.cut = true // wrapOff
	lines := fit(p.lines(output.TableWidth(r.to), output.Colorful(r.to)), height)
	if _, err := io.WriteString(r.to, clear+wrapOff+strings.Join(lines, "\n")+"\n"+wrapOn); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// fit cuts lines to the height of a screen, including the cursor's line, and counts those that are cut.
func fit(lines []string, height int) []string {
	if len(lines) < height {
		return lines
	}
	shown := max(height-2, 0)
	return append(slices.Clone(lines[:shown]), "... "+output.Count(len(lines)-shown, "more line"))
}

// appended is a file or a pipe: the rows that changed follow each other.
type appended struct {
	to     io.Writer
	widths []int
	said   map[string]string
	drawn  string
}

func (a *appended) show(p *picture) error {
	if len(p.titles) == 0 {
		return a.redraw(p)
	}
	var lines []string
	if a.said == nil {
		a.said = map[string]string{}
		a.widths = p.table().Widths(nil)
		if !p.bare {
			lines = append(lines, output.Line(cells(p.titles...), a.widths, false))
		}
	}
	a.widths = p.table().Widths(a.widths)
	there := map[string]bool{}
	for i := range p.rows {
		r := &p.rows[i]
		there[r.key] = true
		text := p.rowText(r)
		if a.said[r.key] != text {
			a.said[r.key] = text
			lines = append(lines, output.Line(r.cells, a.widths, false))
		}
	}
	for _, key := range gone(a.said, there) {
		lines = append(lines, output.Visible(key)+" is gone")
	}
	if len(lines) == 0 {
		return nil
	}
	return writeLines(a.to, lines)
}

// rowText returns the text by which rows are compared. It leaves out the age, which
// changes by itself.
func (p *picture) rowText(r *row) string {
	var b strings.Builder
	for i, c := range r.cells {
		if p.titles[i] != ageTitle {
			b.WriteString(c.Text + "\x00")
		}
	}
	return b.String()
}

// gone removes the rows that no longer exist, and returns them in order.
func gone(said map[string]string, there map[string]bool) []string {
	var keys []string
	for key := range said {
		if !there[key] {
			keys = append(keys, key)
			delete(said, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// redraw writes a drawing completely if it has changed.
func (a *appended) redraw(p *picture) error {
	lines := p.lines(0, false)
	text := strings.Join(lines, "\n")
	if text == a.drawn {
		return nil
	}
	if a.drawn != "" {
		lines = append([]string{""}, lines...)
	}
	a.drawn = text
	return writeLines(a.to, lines)
}

// stream writes each change as one line of JSON.
type stream struct {
	to   io.Writer
	said map[string]string
}

// change is a line of a stream.
type change struct {
	// Type is "row" for one that is new or has changed, and "gone".
	Type string `json:"type"`
	Key  string `json:"key"`
	Row  any    `json:"row,omitempty"`
}

func (s *stream) show(p *picture) error {
	if s.said == nil {
		s.said = map[string]string{}
	}
	there := map[string]bool{}
	for i := range p.rows {
		r := &p.rows[i]
		there[r.key] = true
		var text strings.Builder
		if err := output.JSONLine(&text, p.what, change{"row", r.key, r.value}); err != nil {
			return err
		}
		if s.said[r.key] == text.String() {
			continue
		}
		s.said[r.key] = text.String()
		if _, err := io.WriteString(s.to, text.String()); err != nil {
			return fmt.Errorf("write %s as JSON: %w", p.what, err)
		}
	}
	for _, key := range gone(s.said, there) {
		if err := output.JSONLine(s.to, p.what, change{Type: "gone", Key: key}); err != nil {
			return err
		}
	}
	return nil
}

// picture is the output for a state: a table, or a drawing, and the same for programs.
type picture struct {
	// what names the document in errors, and one of its rows in a stream.
	what     string
	document any
	titles   []string
	// least are titles of columns that a narrow terminal goes without, the least important first.
	least []string
	// cut is [output.Table.Cut].
	cut  bool
	rows []row
	// drawing takes the place of the table.
	drawing []output.Branch
	// text takes the place of the table: it is wrapped, and no table.
	text func(color bool) []string
	// bare leaves the titles out.
	bare bool
	// empty is printed for people instead of an empty table.
	empty string
}

// row is one line of a table.
type row struct {
	// key identifies the row from one state to the next.
	key string
	// name is the object's, as the argument of another command.
	name  string
	cells []output.Cell
	value any
}

// cells are cells without colors.
func cells(texts ...string) []output.Cell {
	all := make([]output.Cell, len(texts))
	for i, t := range texts {
		all[i].Text = t
	}
	return all
}

func (p *picture) table() *output.Table {
	t := &output.Table{Least: p.least, Cut: p.cut}
	if !p.bare {
		t.Titles = p.titles
	}
	for i := range p.rows {
		t.Rows = append(t.Rows, p.rows[i].cells)
	}
	return t
}

// lines returns the picture for people. Tables and trees keep to the width; 0 means no limit.
func (p *picture) lines(width int, color bool) []string {
	switch {
	case p.text != nil:
		return p.text(color)
	case len(p.drawing) > 0:
		var b strings.Builder
		_ = output.WriteTree(&b, p.drawing, width, color) // a builder takes everything
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	case len(p.rows) == 0:
		return []string{p.empty}
	}
	return p.table().Lines(width, color)
}

// print writes the picture once.
func (o *printing) print(w io.Writer, p *picture) error {
	if done, err := output.Document(w, o.format, p.what, p.document); done {
		return err
	}
	switch o.format {
	case jsonPath:
		return o.query.print(w, p.document)
	case "name":
		if names := p.names(); len(names) > 0 {
			return writeLines(w, names)
		}
		return nil
	}
	return writeLines(w, p.lines(output.TableWidth(w), output.Colorful(w)))
}

func writeLines(w io.Writer, lines []string) error {
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
