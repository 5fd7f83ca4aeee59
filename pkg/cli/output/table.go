package output

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Cell is the content of one column of a row.
type Cell struct {
	Text string
	// Color adds no information to the text.
	Color Color
}

// Table is rows below titles. text/tabwriter counts a color's escapes as text, and can't continue a written table.
//
// Texts are escaped by [Visible], because anyone may have written them. A long text widens its column. A row can have
// fewer cells than there are titles.
type Table struct {
	Titles []string
	Rows   [][]Cell
}

// gap is the space between two columns, the same as kubectl's.
const gap = 3

// Lines returns the titles, if any, and the rows, as lines without newlines. If they are longer than limit, the widest
// texts with several words are wrapped; 0 means no limit.
func (t *Table) Lines(limit int, color bool) []string {
	widths := t.Widths(nil)
	rows := wrapped(t.Rows, widths, limit, gap)
	lines := make([]string, 0, len(rows)+1)
	if len(t.Titles) > 0 {
		lines = append(lines, t.Head(widths, color))
	}
	for _, row := range rows {
		lines = append(lines, Line(row, widths, color))
	}
	return lines
}

// Columns returns the lines of a table without colors. The first row has the titles, columns are two spaces apart, and
// limit is as for [Table.Lines].
func Columns(rows [][]string, limit int) []string {
	const gap = 2
	t := &Table{}
	for _, row := range rows {
		cells := make([]Cell, len(row))
		for i, text := range row {
			cells[i].Text = text
		}
		t.Rows = append(t.Rows, cells)
	}
	widths := t.Widths(nil)
	lines := make([]string, 0, len(rows))
	for _, row := range wrapped(t.Rows, widths, limit, gap) {
		lines = append(lines, line(row, widths, gap, false))
	}
	return lines
}

// Widths returns the width of each column, and at least the width before, for a table that continues a written one.
func (t *Table) Widths(before []int) []int {
	widths := slices.Clone(before)
	widen := func(i int, text string) {
		if i >= len(widths) {
			widths = append(widths, 0)
		}
		widths[i] = max(widths[i], utf8.RuneCountInString(text))
	}
	for i, title := range t.Titles {
		widen(i, title)
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			widen(i, Visible(cell.Text))
		}
	}
	return widths
}

// Columns with texts of more than prose characters are wrapped in tables that are too wide, to at least minProse.
const (
	prose    = 40
	minProse = 20
)

// wrapped narrows the columns of prose, the widest first, until the rows fit limit, or as far as possible. It returns
// the rows. The rest of a wrapped text is in rows of its own.
func wrapped(rows [][]Cell, widths []int, limit, gap int) [][]Cell {
	over := gap*(len(widths)-1) - limit
	for _, width := range widths {
		over += width
	}
	if limit == 0 || over <= 0 {
		return rows
	}
	least := leastWidths(rows, widths)
	for ; over > 0; over-- {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	var all [][]Cell
	for _, row := range rows {
		all = append(all, below(row, widths)...)
	}
	return all
}

// leastWidths returns the minimum width of each column. A column of prose fits its longest word.
func leastWidths(rows [][]Cell, widths []int) []int {
	least := make([]int, len(widths))
	for i := range least {
		if least[i] = widths[i]; widths[i] > prose {
			least[i] = minProse
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			for _, word := range words(Visible(cell.Text)) {
				least[i] = max(least[i], utf8.RuneCountInString(word))
			}
		}
	}
	return least
}

// below returns a row as several rows, with its texts wrapped.
func below(row []Cell, widths []int) [][]Cell {
	var all [][]Cell
	for i, cell := range row {
		for n, text := range Wrap(Visible(cell.Text), widths[i]) {
			if n == len(all) {
				all = append(all, make([]Cell, len(row)))
			}
			all[n][i] = Cell{text, cell.Color}
		}
	}
	return all
}

// Head returns the line of the titles.
func (t *Table) Head(widths []int, color bool) string {
	cells := make([]Cell, len(t.Titles))
	for i, title := range t.Titles {
		cells[i] = Cell{title, Bold}
	}
	return Line(cells, widths, color)
}

// Line returns a row as one line. A text that is wider than its column moves the others.
func Line(row []Cell, widths []int, color bool) string { return line(row, widths, gap, color) }

func line(row []Cell, widths []int, gap int, color bool) string {
	var b strings.Builder
	blank := 0
	for i, cell := range row {
		text := Visible(cell.Text)
		if text != "" {
			b.WriteString(strings.Repeat(" ", blank))
			b.WriteString(Paint(color, cell.Color, text))
			blank = 0
		}
		blank += max(widths[i]-utf8.RuneCountInString(text), 0) + gap
	}
	return b.String()
}
