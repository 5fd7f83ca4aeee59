package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// CatalogueFormats returns the names that [WriteCatalogue] and [WriteMapping] know,
// the default first.
func CatalogueFormats() []string { return []string{"table", "json", "yaml", "md"} }

// entry is a rule with its severities by profile and the controls that it supports.
type entry struct {
	rule.Rule
	Group string `json:"group"`
	// Severities are those of profiles in which they differ.
	Severities map[string]string `json:"severities"`
	Supports   []finding.Support `json:"supports"`
}

func newEntry(r *rule.Rule, frameworks []finding.Framework) entry {
	e := entry{Rule: *r, Group: r.Group(), Severities: map[string]string{}, Supports: finding.ControlsFor(frameworks, r.ID)}
	e.Sources = notNil(e.Sources)
	for _, p := range finding.Profiles() {
		if s := p.Severity(r); s != r.Severity {
			e.Severities[p.Name] = string(s)
		}
	}
	return e
}

// Weight returns the severity of a failure, and the severities in profiles in which it differs.
func (e *entry) Weight() string {
	words := []string{string(e.Severity)}
	for _, p := range finding.Profiles() {
		if s, ok := e.Severities[p.Name]; ok {
			words = append(words, p.Name+": "+s)
		}
	}
	return strings.Join(words, "; ")
}

// WriteCatalogue writes all rules, by group.
func WriteCatalogue(w io.Writer, c *rule.Catalogue, format string, o Options) error {
	frameworks, err := finding.Frameworks()
	if err != nil {
		return err
	}
	entries := []entry{}
	for i := range c.Rules {
		entries = append(entries, newEntry(&c.Rules[i], frameworks))
	}
	all := map[string]any{"checks": entries, "groups": rule.Groups(), "notAsked": c.NotAsked}
	if done, err := output.Document(w, format, "catalogue", all); done {
		return err
	}
	if format == "md" {
		return fillIn(w, "catalogue", cataloguePage{grouped(entries), c.NotAsked})
	}
	var b strings.Builder
	if len(entries) > 0 {
		writeColumns(&b, o.width(), catalogueColumns(), "ID", "SEVERITY", "BY", "CHECK")
	}
	for _, g := range grouped(entries) {
		g.writeTable(&b, o.width())
	}
	writeNotAsked(&b, c.NotAsked, o.width())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	return nil
}

// catalogueColumns are the widths of the table's columns but the last.
func catalogueColumns() []int { return []int{10, 10, 8} }

// cataloguePage is the input of the catalogue's template.
type cataloguePage struct {
	Groups   []group
	NotAsked []rule.NotAsked
}

// group is a group of the catalogue, with the controls that most of its rules support.
type group struct {
	rule.Group
	Controls string
	Rules    []ruleSection
}

// ruleSection is the input of a template for one rule.
type ruleSection struct {
	entry
	Lines []ruleLine
}

type ruleLine struct{ Name, Text string }

// grouped returns the groups that have entries. A rule's section leaves out its group's controls, and refers to an earlier
// rule with the same text.
func grouped(entries []entry) []group {
	var all []group
	for _, g := range rule.Groups() {
		some := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.Group != g.Letters })
		if len(some) == 0 {
			continue
		}
		one, said := group{Group: g, Controls: sharedControls(some)}, map[string]string{}
		for i := range some {
			one.Rules = append(one.Rules, some[i].section(one.Controls, said))
		}
		all = append(all, one)
	}
	return all
}

// section returns a rule's section of a page. said has the rules that were first to have a line, by the line.
func (e *entry) section(shared string, said map[string]string) ruleSection {
	s := ruleSection{entry: *e}
	line := func(name, text, shown string) {
		switch first, known := said[name+text]; {
		case text == "":
		case known:
			s.Lines = append(s.Lines, ruleLine{name, "as " + first})
		default:
			said[name+text] = e.ID
			s.Lines = append(s.Lines, ruleLine{name, shown})
		}
	}
	for i := range e.Settings {
		wants := e.Settings[i].Wanted() + " (read in " + e.Settings[i].ReadIn() + ")"
		line("Wants", wants, md(wants))
	}
	if len(e.Codes) > 0 {
		s.Lines = append(s.Lines, ruleLine{"Codes", "`" + strings.Join(e.codes(), "`, `") + "`"})
	}
	sources := strings.Join(e.Sources, "; ")
	line("Fix", e.Fix, md(e.Fix))
	line("Command", e.Verify, code(e.Verify))
	line("Sources", sources, md(sources))
	switch own := controls(e.Supports); own {
	case shared:
	case "":
		s.Lines = append(s.Lines, ruleLine{"Controls", "none"})
	default:
		line("Controls", own, md(own))
	}
	return s
}

// codes returns the codes for the same fault.
func (e *entry) codes() []string {
	words := make([]string, len(e.Codes))
	for i, c := range e.Codes {
		words[i] = string(c)
	}
	return words
}

func (g *group) writeTable(b *strings.Builder, width int) {
	for i := range g.Rules {
		r, asked := &g.Rules[i], "" // by the plugin, whenever its node changes
		if r.Cheap {
			asked = "plugin"
		}
		writeColumns(b, width, catalogueColumns(), r.ID, string(r.Severity), asked, r.Title)
	}
}

// sharedControls returns the controls that most of a group's rules support. It is empty if no two rules have the same.
func sharedControls(entries []entry) string {
	times := map[string]int{}
	most := ""
	for i := range entries {
		c := controls(entries[i].Supports)
		if times[c]++; times[c] > 1 && times[c] > times[most] {
			most = c
		}
	}
	return most
}

// controls are a rule's controls by framework, "nist-800-53: SC-39, SC-3*": an asterisk marks those that it supports in part.
func controls(supports []finding.Support) string {
	var b strings.Builder
	for i, s := range supports {
		switch {
		case i > 0 && supports[i-1].Framework == s.Framework:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("; ")
			// A new framework begins with its name, the first one too.
			fallthrough
		default:
			b.WriteString(s.Framework + ": ")
		}
		b.WriteString(s.Control)
		if s.Strength == finding.Supporting {
			b.WriteString("*")
		}
	}
	return b.String()
}

// writeNotAsked writes the questions that no check answers, so that a reader does not assume that they are answered.
func writeNotAsked(b *strings.Builder, all []rule.NotAsked, width int) {
	var ids []string
	for _, not := range all {
		ids = append(ids, not.ID)
	}
	b.WriteString("\nNot checked; `kata-vfio-audit checks -o md` gives the reasons, and what to check by hand\n")
	writeColumns(b, width, []int{10}, "", strings.Join(ids, " "))
}

// WriteMapping writes a framework's controls and the rules that support each.
func WriteMapping(w io.Writer, f *finding.Framework, rules []rule.Rule, format string, o Options) error {
	controls := []finding.Control{}
	for _, c := range f.Controls {
		named := c
		c.Rules = []string{}
		for i := range rules {
			if named.Covers(rules[i].ID) {
				c.Rules = append(c.Rules, rules[i].ID)
			}
		}
		// The copy has its own list of rules: the framework is shared by all pages.
		controls = append(controls, c)
	}
	named := finding.Framework{ID: f.ID, Title: f.Title, Version: f.Version, Controls: controls}
	if done, err := output.Document(w, format, "mapping", named); done {
		return err
	}
	if format == "md" {
		return fillIn(w, "mapping", &named)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: the checks support these controls; whether they are met is for an assessor to say\n", f.Name())
	for _, c := range controls {
		fmt.Fprintf(&b, "\n%s %s (%s)\n", c.Control, c.Title, c.Strength)
		writeColumns(&b, o.width(), []int{2}, "", c.Rationale)
		writeColumns(&b, o.width(), []int{2}, "", cmp.Or(strings.Join(c.Rules, " "), "-"))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write mapping: %w", err)
	}
	return nil
}

// writeColumns writes a line of cells, all but the last of fixed width; the last is
// wrapped within the width.
func writeColumns(b *strings.Builder, width int, widths []int, cells ...string) {
	first, indent := "", ""
	for i, width := range widths {
		first += fmt.Sprintf("%-*s", width, cells[i])
		indent += strings.Repeat(" ", width)
	}
	for _, text := range output.Wrap(cells[len(cells)-1], width-len(indent)) {
		b.WriteString(strings.TrimRight(first+text, " ") + "\n")
		first = indent
	}
}

// WriteProfiles writes the purpose of each profile, and the rules to which it gives another severity; format is table, json
// or yaml.
func WriteProfiles(w io.Writer, profiles []finding.Profile, format string, o Options) error {
	if done, err := output.Document(w, format, "profiles", map[string]any{"profiles": profiles}); done {
		return err
	}
	var b strings.Builder
	for i, p := range profiles {
		if i > 0 {
			b.WriteString("\n")
		}
		about := p.About
		if i == 0 {
			about += " (the default)"
		}
		fmt.Fprintf(&b, "%s: %s\n", p.Name, about)
		for _, severity := range append(finding.Severities(), finding.Off) {
			if ids := weighing(&p, severity); len(ids) > 0 {
				writeColumns(&b, o.width(), []int{2, 10}, "", string(severity), strings.Join(ids, " "))
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write profiles: %w", err)
	}
	return nil
}

// weighing returns the rules that a profile gives the severity, in the order of the
// catalogue.
func weighing(p *finding.Profile, severity rule.Severity) []string {
	var ids []string
	for _, g := range rule.Groups() {
		for _, id := range slices.Sorted(maps.Keys(p.Severities)) {
			if strings.HasPrefix(id, g.Letters+"-") && p.Severities[id] == severity {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
