package output

import (
	"cmp"
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
	// Least are titles of columns that a narrow terminal goes without, the least important first.
	Least []string
	// Cut says that the terminal cuts long lines at its edge, so that rows need not become lists.
	Cut bool
	// Gap is the space between two columns; 0 is kubectl's, which is 3.
	Gap int
}

// gap is the space between two columns, the same as kubectl's.
const gap = 3

func (t *Table) gap() int { return cmp.Or(t.Gap, gap) }

// Lines returns the titles, if any, and the rows, as lines without newlines. If they are longer than limit, columns of Least are left out,
// then the widest texts with several words are wrapped. If that is not enough, each row is a list of its cells, so that the terminal never
// breaks a line. 0 means no limit.
func (t *Table) Lines(limit int, color bool) []string {
	t, left := t.within(limit)
	widths := t.Widths(nil)
	rows := wrapped(t.Rows, widths, limit, t.gap())
	if limit > 0 && width(widths, t.gap()) > limit && len(t.Titles) > 0 && !t.Cut {
		return append(t.lists(limit, color), LeftOut(left, limit)...)
	}
	lines := make([]string, 0, len(rows)+2)
	if len(t.Titles) > 0 {
		lines = append(lines, line(t.titles(), widths, t.gap(), color))
	}
	for _, row := range rows {
		lines = append(lines, line(row, widths, t.gap(), color))
	}
	if !t.Cut { // a screen that is redrawn has no line to spare
		lines = append(lines, LeftOut(left, limit)...)
	}
	return lines
}

// LeftOut returns the lines that say which columns a terminal has no room for, after an empty one; nothing if all are there.
func LeftOut(titles []string, limit int) []string {
	if len(titles) == 0 {
		return nil
	}
	return append([]string{""}, Wrap("left out, as the terminal is too narrow: "+strings.Join(titles, ", "), limit)...)
}

// width returns how wide rows are.
func width(widths []int, gap int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// within returns the table without the columns of Least that have no room, and their titles. Where texts can be wrapped, a column has room.
func (t *Table) within(limit int) (fits *Table, left []string) {
	fits = t
	for _, title := range t.Least {
		least := leastWidths(fits.Rows, fits.Widths(nil))
		for i := range min(len(least), len(fits.Titles)) {
			least[i] = max(least[i], utf8.RuneCountInString(fits.Titles[i]))
		}
		column := slices.Index(fits.Titles, title)
		if limit == 0 || width(least, t.gap()) <= limit || column < 0 {
			continue
		}
		fits, left = fits.without(column), append(left, title)
	}
	return fits, left
}

// without returns the table without a column.
func (t *Table) without(column int) *Table {
	less := &Table{Cut: t.Cut, Gap: t.Gap, Titles: slices.Delete(slices.Clone(t.Titles), column, column+1)}
	for _, row := range t.Rows {
		if column < len(row) {
			row = slices.Delete(slices.Clone(row), column, column+1)
		}
		less.Rows = append(less.Rows, row)
	}
	return less
}

// lists returns each row as a list: a cell in a line, after its title, or below it if a word, such as a path, is too long for that.
func (t *Table) lists(limit int, color bool) []string {
	indent := 0
	for _, title := range t.Titles {
		indent = max(indent, utf8.RuneCountInString(title))
	}
	var lines []string
	for n, row := range t.Rows {
		if n > 0 {
			lines = append(lines, "")
		}
		for i, cell := range row {
			title := ""
			if i < len(t.Titles) {
				title = t.Titles[i]
			}
			lines = append(lines, item(title, cell, indent+2, limit, color)...)
		}
	}
	return lines
}

// item returns the lines of a cell in a list.
func item(title string, cell Cell, indent, limit int, color bool) []string {
	texts := Wrap(Visible(cell.Text), max(limit-indent, minProse))
	lead := Paint(color, Bold, title) + strings.Repeat(" ", indent-utf8.RuneCountInString(title))
	var lines []string
	if slices.ContainsFunc(texts, func(text string) bool { return utf8.RuneCountInString(text) > limit-indent }) {
		lines, indent = append(lines, Paint(color, Bold, title)), 2
		lead = strings.Repeat(" ", indent)
	}
	for _, text := range texts {
		lines = append(lines, lead+Paint(color, cell.Color, text))
		lead = strings.Repeat(" ", indent)
	}
	return lines
}

// Columns returns the lines of a table without colors. The first row has the titles, columns are two spaces apart, and limit
// and least are as for [Table.Lines] and [Table.Least].
func Columns(rows [][]string, limit int, least ...string) []string {
	t := &Table{Least: least, Gap: 2}
	for i, row := range rows {
		if i == 0 {
			t.Titles = row
			continue
		}
		cells := make([]Cell, len(row))
		for k, text := range row {
			cells[k].Text = text
		}
		t.Rows = append(t.Rows, cells)
	}
	return t.Lines(limit, false)
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

// wrapped narrows the columns of prose, the widest first, until the rows fit limit or no column can be narrower. It returns
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
	// By one character at a time, so that columns that are equally wide shrink together.
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
func (t *Table) Head(widths []int, color bool) string { return Line(t.titles(), widths, color) }

func (t *Table) titles() []Cell {
	cells := make([]Cell, len(t.Titles))
	for i, title := range t.Titles {
		cells[i] = Cell{title, Bold}
	}
	return cells
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
