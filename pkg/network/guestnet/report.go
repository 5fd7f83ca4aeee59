package guestnet

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// RulePriority is the priority of the rules that select a routing table by source address: after the local table's (0),
// before the main one's (32766).
const RulePriority = 1000

// Report is the state of the interfaces after a run. After an error it has the changes so far.
type Report struct {
	// Changed: anything was changed.
	Changed bool `json:"changed"`
	// DryRun: nothing was changed. Values and all Changed fields, the report's included, show what a run would do.
	// Carrier and Unmanaged show the current state.
	DryRun     bool        `json:"dryRun"`
	Interfaces []Interface `json:"interfaces"`
}

// Interface is the interface of one device.
type Interface struct {
	// Claim and Request are empty for an entry of a config file.
	Claim   string `json:"claim,omitempty"`
	Request string `json:"request,omitempty"`
	Device  string `json:"device"`
	// FoundBy is "mac", "portGUID" or "pci".
	FoundBy string `json:"foundBy"`
	MAC     string `json:"mac"`
	// PCI is the function's address in the guest, empty if the interface does not show it.
	PCI       string          `json:"pci,omitempty"`
	Name      Setting[string] `json:"name"`
	MTU       Setting[int]    `json:"mtu"`
	Up        Setting[bool]   `json:"up"`
	Addresses []Address       `json:"addresses"`
	Routes    []RouteResult   `json:"routes"`
	Rules     []RuleResult    `json:"rules"`
	// Carrier: the interface had a link at the end.
	Carrier bool `json:"carrier"`
	// Unmanaged is configuration that was not requested and is unchanged.
	Unmanaged Unmanaged `json:"unmanaged"`
}

// Setting is a value, and its former value if it was changed.
type Setting[T any] struct {
	Value   T    `json:"value"`
	Was     *T   `json:"was,omitempty"`
	Changed bool `json:"changed"`
}

// change sets the value.
func (s *Setting[T]) change(value T) {
	was := s.Value
	*s = Setting[T]{Value: value, Was: &was, Changed: true}
}

// Address is a requested address.
type Address struct {
	Address netip.Prefix `json:"address"`
	// Tentative: duplicate address detection had not ended. It ends only with a link.
	Tentative bool `json:"tentative,omitempty"`
	Changed   bool `json:"changed"`
}

// Route is a route of an interface. Without a valid Via it is on the link.
type Route struct {
	To     netip.Prefix `json:"to"`
	Via    netip.Addr   `json:"via,omitzero"`
	Table  int          `json:"table"`
	Metric int          `json:"metric"`
}

// String returns the form of "ip route": "default via 192.0.2.1 table 100".
func (r Route) String() string {
	text := r.To.String()
	if r.To.Bits() == 0 {
		text = "default"
	}
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	if r.Table != mainTable {
		text += " table " + strconv.Itoa(r.Table)
	}
	if r.Metric != metric(r.To.Addr(), nil) {
		text += " metric " + strconv.Itoa(r.Metric)
	}
	return text
}

// RouteResult is a route that the device requests or its table needs.
type RouteResult struct {
	Route
	Changed bool `json:"changed"`
}

// Rule selects a routing table by source address.
type Rule struct {
	From     netip.Addr `json:"from"`
	Table    int        `json:"table"`
	Priority int        `json:"priority"`
}

// String returns the form of "ip rule": "from 192.0.2.10 lookup 100".
func (r Rule) String() string { return fmt.Sprintf("from %s lookup %d", r.From, r.Table) }

// RuleResult is a rule that an address with a table needs.
type RuleResult struct {
	Rule
	Changed bool `json:"changed"`
}

// Unmanaged has an interface's addresses and routes that were not requested, except those that the kernel creates: the
// link-local ones, and the routes to the addresses' networks in the main table.
type Unmanaged struct {
	Addresses []netip.Prefix `json:"addresses"`
	Routes    []Route        `json:"routes"`
	// Rules are other rules for the requested addresses.
	Rules []Rule `json:"rules"`
}

// changed reports whether anything about the interface was changed.
func (i *Interface) changed() bool {
	return i.Name.Changed || i.MTU.Changed || i.Up.Changed ||
		slices.ContainsFunc(i.Addresses, func(a Address) bool { return a.Changed }) ||
		slices.ContainsFunc(i.Routes, func(r RouteResult) bool { return r.Changed }) ||
		slices.ContainsFunc(i.Rules, func(r RuleResult) bool { return r.Changed })
}

// newReport returns the report of the targets.
func newReport(targets []*target, dryRun bool) *Report {
	r := &Report{DryRun: dryRun, Interfaces: make([]Interface, len(targets))}
	for i, t := range targets {
		r.Interfaces[i] = t.result
		r.Changed = r.Changed || t.result.changed()
	}
	return r
}

// WriteJSON writes the report as one indented JSON document.
func (r *Report) WriteJSON(w io.Writer) error { return output.JSON(w, "report", r) }

// WriteYAML writes the report as YAML with the names of the JSON form.
func (r *Report) WriteYAML(w io.Writer) error { return output.YAML(w, "report", r) }

// WriteTable writes the report as a table: a row for each interface, with more lines for several addresses, routes or
// changes. Width is the width of the terminal; 0 means no limit.
func (r *Report) WriteTable(w io.Writer, width int) error {
	changed := "CHANGED"
	if r.DryRun {
		changed = "WOULD CHANGE"
	}
	rows := [][]string{{"INTERFACE", "MAC", "PCI", "MTU", "LINK", "ADDRESSES", "ROUTES", changed}}
	for i := range r.Interfaces {
		rows = append(rows, transpose(r.Interfaces[i].columns())...)
	}
	if _, err := io.WriteString(w, strings.Join(output.Columns(rows, width), "\n")+"\n"); err != nil {
		return fmt.Errorf("write report: %w", err)
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

// changes returns the changes, one on each line.
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

// transpose puts columns of different lengths side by side. An empty cell in the first row is a dash.
func transpose(columns [][]string) [][]string {
	lines := 1
	for _, c := range columns {
		lines = max(lines, len(c))
	}
	rows := make([][]string, lines)
	for line := range rows {
		rows[line] = make([]string, len(columns))
		for i, c := range columns {
			if line < len(c) {
				rows[line][i] = c[line]
			}
			if line == 0 {
				rows[line][i] = cmp.Or(rows[line][i], "-")
			}
		}
	}
	return rows
}

// printable escapes a name of the kernel for a terminal. The kernel accepts control characters in names.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}
