package guestnet

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteTable writes the report for people: a row for each interface, with more
// lines where it has several addresses, routes or changes.
func (r *Report) WriteTable(w io.Writer) error {
	changed := "CHANGED"
	if r.DryRun {
		changed = "WOULD CHANGE"
	}
	var text bytes.Buffer
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "INTERFACE\tMAC\tPCI\tMTU\tLINK\tADDRESSES\tROUTES\t%s\n", changed)
	for i := range r.Interfaces {
		writeRows(tab, r.Interfaces[i].columns())
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("lay out report: %w", err)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}

// columns returns the lines of each of the interface's cells.
func (i *Interface) columns() [][]string {
	link := "none"
	if i.Carrier {
		link = "up"
	}
	var addresses, routes []string
	for _, a := range i.Addresses {
		addresses = append(addresses, a.Address.String())
	}
	for _, r := range i.Routes {
		routes = append(routes, r.String())
	}
	return [][]string{
		{printable(i.Name.Value)},
		{i.MAC},
		{i.PCI},
		{strconv.Itoa(i.MTU.Value)},
		{link},
		addresses,
		routes,
		i.changes(),
	}
}

// changes says what was changed, a line for each.
func (i *Interface) changes() []string {
	var lines []string
	note := func(changed bool, format string, args ...any) {
		if changed {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	if i.Name.Changed {
		note(true, "name (was %s)", printable(*i.Name.Was))
	}
	if i.MTU.Changed {
		note(true, "MTU (was %d)", *i.MTU.Was)
	}
	note(i.Up.Changed, "up")
	for _, a := range i.Addresses {
		note(a.Changed, "%s", a.Address)
	}
	for _, r := range i.Routes {
		note(r.Changed, "%s", r.Route)
	}
	for _, r := range i.Rules {
		note(r.Changed, "%s", r.Rule)
	}
	note(len(lines) == 0, "nothing")
	return lines
}

// writeRows writes columns of unequal length side by side; an empty cell of
// the first line is a dash.
func writeRows(w io.Writer, columns [][]string) {
	lines := 1
	for _, c := range columns {
		lines = max(lines, len(c))
	}
	for line := range lines {
		cells := make([]string, len(columns))
		for i, c := range columns {
			if line < len(c) {
				cells[i] = c[line]
			}
			if line == 0 && cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// printable returns a name that the kernel has in a form that can do nothing to
// a terminal: the kernel takes control characters too.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}
