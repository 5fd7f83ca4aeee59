package terminal

import (
	"strings"
	"unicode/utf8"
)

// Cell is the content of one column of a row.
type Cell struct {
	Text string
	// Color is for those who see it: the text says the same.
	Color Color
}

// Table is rows under titles. text/tabwriter counts a colour's escapes as text, and can't continue a table that is written already.
//
// Texts may come from anyone: they are written as [Visible] has them, and a long one
// makes its column wide. A row may be shorter than the titles.
type Table struct {
	Titles []string
	Rows   [][]Cell
}

// gap is the space between two columns, the same as kubectl's.
const gap = "   "

// Lines returns the titles and then the rows, as lines without their ends.
func (t *Table) Lines(color bool) []string {
	widths := t.Widths(nil)
	lines := make([]string, 0, len(t.Rows)+1)
	lines = append(lines, t.Head(widths, color))
	for _, row := range t.Rows {
		lines = append(lines, Line(row, widths, color))
	}
	return lines
}

// Widths returns what each column takes, and no less than before: for a table that
// goes on below what is written already.
func (t *Table) Widths(before []int) []int {
	widths := make([]int, len(t.Titles))
	copy(widths, before)
	for i, title := range t.Titles {
		widths[i] = max(widths[i], utf8.RuneCountInString(title))
		for _, row := range t.Rows {
			if i < len(row) {
				widths[i] = max(widths[i], utf8.RuneCountInString(Visible(row[i].Text)))
			}
		}
	}
	return widths
}

// Head returns the line of the titles.
func (t *Table) Head(widths []int, color bool) string {
	cells := make([]Cell, len(t.Titles))
	for i, title := range t.Titles {
		cells[i] = Cell{title, Bold}
	}
	return Line(cells, widths, color)
}

// Line returns a row as one line. What is wider than its column moves the others.
func Line(row []Cell, widths []int, color bool) string {
	var b strings.Builder
	blank := 0
	for i, cell := range row {
		text := Visible(cell.Text)
		if text != "" {
			b.WriteString(strings.Repeat(" ", blank))
			b.WriteString(Paint(color, cell.Color, text))
			blank = 0
		}
		blank += max(widths[i]-utf8.RuneCountInString(text), 0) + len(gap)
	}
	return b.String()
}
