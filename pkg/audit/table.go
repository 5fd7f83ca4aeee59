package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// minProduct is the least width of the product column.
const minProduct = 12

// WriteTable writes one line for each function and then the problems with their fixes, the worst last. Names are shortened to the
// style's width. On a terminal that is too narrow, the least important columns are left out.
func (inv *Inventory) WriteTable(w io.Writer, style Style) error {
	rows := inv.rows(style.Bridges)
	cols, left := within(narrow(), rows, style.Terminal)
	fit(cols, rows, style.width())
	return inv.writeReport(w, rows, cols, left, style)
}

// WriteWide writes all columns for which the terminal has room, at their full width, and the problems as in [Inventory.WriteTable].
func (inv *Inventory) WriteWide(w io.Writer, style Style) error {
	rows := inv.rows(style.Bridges)
	cols, left := within(wide(), rows, style.Terminal)
	fit(cols, rows, style.Terminal)
	return inv.writeReport(w, rows, cols, left, style)
}

// column is one column of a table.
type column struct {
	title string
	cell  func(*row) string
	// right aligns numbers.
	right bool
	// flexible marks the column that shrinks if the page is too narrow.
	flexible bool
	// judged marks a column that has the verdict's color.
	judged bool
	width  int
}

func narrow() []column {
	return []column{
		{cell: func(r *row) string { return r.device.Grade().Mark() }, judged: true},
		{title: "ADDRESS", cell: func(r *row) string { return r.device.Address.String() }},
		{title: "TYPE", cell: func(r *row) string { return string(r.device.Type) }},
		{title: "DEVICE", cell: func(r *row) string { return r.device.Product() }, flexible: true},
		{title: "DRIVER", cell: func(r *row) string { return orDash(r.device.Driver) }},
		{title: "NUMA", cell: (*row).numa, right: true},
		{title: "GROUP", cell: (*row).group},
		{title: "VERDICT", cell: (*row).verdict, judged: true},
	}
}

func wide() []column {
	cols := narrow()
	verdict := len(cols) - 1
	name := slices.IndexFunc(cols, func(c column) bool { return c.title == "DEVICE" })
	cols[name].cell = (*row).name
	more := []column{
		{title: "ID", cell: func(r *row) string { return r.device.Vendor.String() + ":" + r.device.Device.String() }},
		{title: "CLASS", cell: func(r *row) string { return r.device.Class.String() }},
		{title: "ROOT", cell: func(r *row) string { return orDash(r.device.Root) }},
		{title: "SWITCH", cell: (*row).pcieSwitch},
		{title: "NEAR", cell: (*row).near},
		{title: "LINK", cell: (*row).link},
		{title: "RESET", cell: (*row).reset},
		{title: "SR-IOV", cell: (*row).sriov},
	}
	used := column{title: "USED FOR", cell: (*row).used}
	// Without the capacity, append could overwrite the verdict's column before it is copied.
	return append(append(cols[:verdict:verdict], more...), cols[verdict], used)
}

// least returns the titles of the columns that may be left out on a narrow terminal, the least important first. The mark, the
// address and the verdict are the answer to the command, so they stay.
func least() []string {
	return []string{"CLASS", "ID", "ROOT", "LINK", "SWITCH", "USED FOR", "SR-IOV", "RESET", "NEAR", "NUMA", "DRIVER", "DEVICE", "TYPE", "GROUP"}
}

// within returns the columns for which a terminal has room, and the titles of the others. 0 means no limit.
func within(cols []column, rows []row, limit int) (fits []column, left []string) {
	for _, title := range least() {
		// After each removed column, the remaining columns are measured again, because the flexible column can shrink first.
		if limit == 0 || fit(cols, rows, limit) <= limit {
			break
		}
		if i := slices.IndexFunc(cols, func(c column) bool { return c.title == title }); i >= 0 {
			cols, left = slices.Delete(cols, i, i+1), append(left, title)
		}
	}
	return cols, left
}

// fit sets the columns' widths to their content, and narrows the flexible column until the table fits into limit; 0 means no limit.
// It returns the width of the table.
func fit(cols []column, rows []row, limit int) int {
	total := 2 * (len(cols) - 1)
	for i := range cols {
		cols[i].width = utf8.RuneCountInString(cols[i].title)
		for j := range rows {
			cols[i].width = max(cols[i].width, utf8.RuneCountInString(cols[i].text(&rows[j])))
		}
		total += cols[i].width
	}
	for i := range cols {
		if c := &cols[i]; c.flexible && limit > 0 && total > limit {
			width := max(c.width-(total-limit), min(c.width, minProduct))
			total -= c.width - width
			c.width = width
		}
	}
	return total
}

// writeReport writes heading, table and hints in one go.
func (inv *Inventory) writeReport(w io.Writer, rows []row, cols []column, left []string, style Style) error {
	var b strings.Builder
	b.WriteString(inv.heading(style.width()) + "\n")
	if inv.Basis != nil {
		b.WriteString(strings.Join(output.Wrap(output.Visible(inv.Basis.String()), style.width()), "\n") + "\n")
	}
	b.WriteString("\n")
	b.WriteString(style.paint(output.Bold, titles(cols)) + "\n")
	for i := range rows {
		b.WriteString(rows[i].line(cols, style) + "\n")
	}
	for _, line := range output.LeftOut(left, style.Terminal) {
		b.WriteString(line + "\n")
	}
	b.WriteString("\n" + strings.Join(output.Wrap(inv.summary(), style.width()), "\n") + "\n")
	if inv.Fabric != nil {
		b.WriteString("\n" + strings.Join(fabricLines(inv.Fabric, style.width(), style.Terminal), "\n") + "\n")
	}
	for _, h := range inv.hints() {
		b.WriteString("\n" + h.text(style))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func titles(cols []column) string {
	cells := make([]string, len(cols))
	for i := range cols {
		cells[i] = cols[i].pad(cols[i].title)
	}
	return strings.TrimRight(strings.Join(cells, "  "), " ")
}

func (r *row) line(cols []column, style Style) string {
	cells := make([]string, len(cols))
	for i := range cols {
		cells[i] = cols[i].pad(cols[i].text(r))
		if i == len(cols)-1 {
			cells[i] = strings.TrimRight(cells[i], " ")
		}
		if cols[i].judged || r.device.IsBridge() {
			cells[i] = style.paint(r.device.Grade().Color(), cells[i])
		}
	}
	return strings.TrimRight(strings.Join(cells, "  "), " ")
}

// text returns the content of a row's cell. Names come from the node.
func (c *column) text(r *row) string { return output.Visible(c.cell(r)) }

// pad pads a cell to the column's width, or cuts it if it is too long.
func (c *column) pad(text string) string {
	text = output.Shorten(text, c.width)
	space := strings.Repeat(" ", c.width-utf8.RuneCountInString(text))
	if c.right {
		return space + text
	}
	return text + space
}

// heading describes the node in one line.
func (inv *Inventory) heading(width int) string {
	parts := []string{"kernel " + orUnknown(inv.Host.Kernel)}
	if len(inv.Host.IOMMUs) > 0 {
		parts = append(parts, "IOMMU "+strings.Join(inv.Host.IOMMUs, " "))
	} else {
		parts = append(parts, "no IOMMU")
	}
	if inv.Host.IOMMUFD {
		parts = append(parts, "iommufd")
	}
	return output.Shorten(output.Visible(strings.Join(parts, ", ")), width)
}

// summary counts the functions that are not isolated, separately for assignable functions and for the chipset's many small
// functions. Together with the refused functions, these are the rows with a cross.
func (inv *Inventory) summary() string {
	var main, others, badMain, badOthers, refused, leftOut int
	for i := range inv.Devices {
		d := &inv.Devices[i]
		all, bad := &others, &badOthers
		switch {
		case d.IsBridge():
			continue
		case d.Assignable():
			all, bad = &main, &badMain
		}
		*all++
		switch {
		case !d.Isolated:
			*bad++
		case d.Grade() == Bad:
			refused++
		case d.LeftOut() != "":
			leftOut++
		}
	}
	text := fmt.Sprintf("not isolated: %d of %d GPUs, PFs, VFs and NVMe drives", badMain, main)
	if others > 0 {
		text += fmt.Sprintf(", %d of %s", badOthers, output.Count(others, "other function"))
	}
	if refused > 0 {
		text += fmt.Sprintf("; isolated, but refused to claims: %d", refused)
	}
	if leftOut > 0 {
		text += fmt.Sprintf("; isolated, but not published, as the node config does not select them: %d", leftOut)
	}
	return text
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// Style says how to print for people.
type Style struct {
	// Color adds terminal colors. The text says the same without them.
	Color bool
	// Bridges lists bridges too.
	Bridges bool
	// Width is in characters; 0 is [output.PageWidth].
	Width int
	// Terminal is the width of the terminal that shows the table; 0 if there is none. In a pipe or a file no column is left out.
	Terminal int
}

func (s Style) width() int { return cmp.Or(s.Width, output.PageWidth) }

// paint wraps text in a color. The text is padded before, because escapes have no width.
func (s Style) paint(color output.Color, text string) string {
	return output.Paint(s.Color, color, text)
}

// Mark returns the grade as one character, so that color is never the only sign.
func (st Grade) Mark() string {
	return [...]string{None: " ", Good: "✓", Concern: "!", Bad: "✗"}[st]
}

// Color returns the grade as a color.
func (st Grade) Color() output.Color {
	return [...]output.Color{None: output.Faint, Good: output.Green, Concern: output.Yellow, Bad: output.Red}[st]
}
