package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/mapping"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// CatalogueFormats returns the names that [WriteCatalogue] and [WriteMapping] know,
// the default first.
func CatalogueFormats() []string { return []string{"table", "json", "yaml", "md"} }

// entry is a rule with what is said of it elsewhere.
type entry struct {
	finding.Rule
	Group string `json:"group"`
	// Severities are those of profiles where they differ.
	Severities map[string]string `json:"severities"`
	Supports   []mapping.Support `json:"supports"`
}

func entryOf(r *finding.Rule, frameworks []mapping.Framework) entry {
	e := entry{Rule: *r, Group: r.Group(), Severities: map[string]string{}, Supports: mapping.Of(frameworks, r.ID)}
	e.Sources = notNil(e.Sources)
	for _, p := range finding.Profiles() {
		if s := p.Severity(r); s != r.Severity {
			e.Severities[p.Name] = string(s)
		}
	}
	return e
}

// weight says how severe a failure is, and where it is otherwise.
func (e *entry) weight() string {
	words := []string{string(e.Severity)}
	for _, p := range finding.Profiles() {
		if s, ok := e.Severities[p.Name]; ok {
			words = append(words, p.Name+": "+s)
		}
	}
	return strings.Join(words, "; ")
}

// WriteCatalogue writes all rules, by group.
func WriteCatalogue(w io.Writer, rules []finding.Rule, format string, o Options) error {
	frameworks, err := mapping.Frameworks()
	if err != nil {
		return err
	}
	entries := []entry{}
	for i := range rules {
		entries = append(entries, entryOf(&rules[i], frameworks))
	}
	all := map[string]any{"checks": entries, "groups": finding.Groups(), "notAsked": finding.NotAskedRules()}
	if done, err := encode.Document(w, format, "catalogue", all); done {
		return err
	}
	var b strings.Builder
	if format == "md" {
		b.WriteString("# The checks of kata-vfio-audit\n\n")
		b.WriteString("`kata-vfio-audit checks -o md` writes this page. `kata-vfio-audit explain CHECK` shows one check, with the node's answer.\n\n")
		b.WriteString("- Severities apply to untrusted tenants. Profiles change some of them.\n")
		b.WriteString("- Controls are those that a check supports, by framework. An asterisk marks partial evidence. No report claims compliance.\n")
		b.WriteString("  `kata-vfio-audit checks --mapping FRAMEWORK` shows titles and reasons. A check without controls of its own has those of its group.\n")
		b.WriteString("- Assignable functions are those that tenants have or can get.\n")
		b.WriteString("- Questions that no check answers are [at the end](#not-checked).\n")
	}
	if format == "table" && len(entries) > 0 {
		writeColumns(&b, o.width(), catalogueColumns(), "ID", "SEVERITY", "BY", "CHECK")
	}
	for _, g := range finding.Groups() {
		var some []entry
		for _, e := range entries {
			if e.Group == g.Letters {
				some = append(some, e)
			}
		}
		if len(some) > 0 {
			writeGroup(&b, g, some, format, o.width())
		}
	}
	writeNotAsked(&b, format, o.width())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write catalogue: %w", err)
	}
	return nil
}

// catalogueColumns are the widths of the table's columns but the last.
func catalogueColumns() []int { return []int{10, 10, 8} }

func writeGroup(b *strings.Builder, g finding.Group, entries []entry, format string, width int) {
	if format != "md" {
		for i := range entries {
			asked := "" // by the plugin, whenever its node changes
			if entries[i].Cheap {
				asked = "plugin"
			}
			writeColumns(b, width, catalogueColumns(), entries[i].ID, string(entries[i].Severity), asked, entries[i].Title)
		}
		return
	}
	fmt.Fprintf(b, "\n## %s: %s\n", g.Letters, g.Title)
	shared := sharedControls(entries)
	if shared != "" {
		fmt.Fprintf(b, "\nControls: %s\n", md(shared))
	}
	said := map[string]string{}
	for i := range entries {
		writeSection(b, &entries[i], shared, said)
	}
}

// writeSection is a rule's own part of the catalogue: without its group's shared
// controls, and with references to rules before it that say the same, which are in said.
func writeSection(b *strings.Builder, e *entry, shared string, said map[string]string) {
	fmt.Fprintf(b, "\n### %s\n\n%s. (%s)\n\n%s\n\n", e.ID, md(e.Title), e.weight(), md(e.Why))
	line := func(name, text, shown string) {
		switch first, known := said[name+text]; {
		case text == "":
		case known:
			fmt.Fprintf(b, "- %s: as %s\n", name, first)
		default:
			said[name+text] = e.ID
			fmt.Fprintf(b, "- %s: %s\n", name, shown)
		}
	}
	line("Fix", e.Fix, md(e.Fix))
	line("Command", e.Verify, code(e.Verify))
	line("Sources", strings.Join(e.Sources, "; "), md(strings.Join(e.Sources, "; ")))
	switch own := controls(e.Supports); own {
	case shared:
	case "":
		b.WriteString("- Controls: none\n")
	default:
		line("Controls", own, md(own))
	}
}

// sharedControls are those that most of a group's rules support; empty where no two
// have the same.
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
func controls(supports []mapping.Support) string {
	var b strings.Builder
	for i, s := range supports {
		switch {
		case i > 0 && supports[i-1].Framework == s.Framework:
			b.WriteString(", ")
		case i > 0:
			b.WriteString("; ")
			fallthrough
		default:
			b.WriteString(s.Framework + ": ")
		}
		b.WriteString(s.Control)
		if s.Strength == mapping.Supporting {
			b.WriteString("*")
		}
	}
	return b.String()
}

// writeNotAsked writes what no check asks: a reader who misses it shall not take it
// for answered.
func writeNotAsked(b *strings.Builder, format string, width int) {
	all := finding.NotAskedRules()
	if format != "md" {
		var ids []string
		for _, not := range all {
			ids = append(ids, not.ID)
		}
		b.WriteString("\nNot checked; `kata-vfio-audit checks -o md` gives the reasons, and what to check by hand\n")
		writeColumns(b, width, []int{10}, "", strings.Join(ids, " "))
		return
	}
	b.WriteString("\n## Not checked\n\n| Question | Why no check answers it | By hand |\n|---|---|---|\n")
	for _, not := range all {
		fmt.Fprintf(b, "| %s: %s | %s | %s |\n", not.ID, md(not.Title), md(not.Why), md(not.ByHand))
	}
}

// WriteMapping writes a framework's controls and the rules that support each.
func WriteMapping(w io.Writer, f *mapping.Framework, rules []finding.Rule, format string, o Options) error {
	controls := []mapping.Control{}
	for _, c := range f.Controls {
		named := c
		c.Rules = []string{}
		for i := range rules {
			if named.Covers(rules[i].ID) {
				c.Rules = append(c.Rules, rules[i].ID)
			}
		}
		controls = append(controls, c)
	}
	if done, err := encode.Document(w, format, "mapping", mapping.Framework{ID: f.ID, Title: f.Title, Version: f.Version, Controls: controls}); done {
		return err
	}
	var b strings.Builder
	if format == "md" {
		fmt.Fprintf(&b, "# What the checks support of %s\n\n| Control | Strength | Checks | Why |\n|---|---|---|---|\n", md(f.Name()))
	} else {
		fmt.Fprintf(&b, "%s: the checks support these controls; whether they are met is for an assessor to say\n", f.Name())
	}
	for _, c := range controls {
		title, checks := c.Control+" "+c.Title, strings.Join(c.Rules, " ")
		if checks == "" {
			checks = "-"
		}
		if format == "md" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", md(title), c.Strength, checks, md(c.Rationale))
			continue
		}
		fmt.Fprintf(&b, "\n%s (%s)\n", title, c.Strength)
		writeColumns(&b, o.width(), []int{2}, "", c.Rationale)
		writeColumns(&b, o.width(), []int{2}, "", checks)
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
	for _, text := range terminal.Wrap(cells[len(cells)-1], width-len(indent)) {
		b.WriteString(strings.TrimRight(first+text, " ") + "\n")
		first = indent
	}
}

// ExplainFormats returns the names that [WriteExplanation] knows, the default first.
func ExplainFormats() []string { return []string{"text", "json", "yaml", "md"} }

// WriteExplanation writes all that is known of a rule: what it checks, why, how to fix a failure, and its sources.
// With the document of a node it adds the results there, with all evidence; d is nil without a node.
func WriteExplanation(w io.Writer, r *finding.Rule, d *Document, format string, o Options) error {
	frameworks, err := mapping.Frameworks()
	if err != nil {
		return err
	}
	e := entryOf(r, frameworks)
	var value any = e
	if d != nil {
		value = struct {
			entry
			Subject  finding.Subject   `json:"subject"`
			Findings []finding.Finding `json:"findings"`
		}{e, d.Subject, d.Findings}
	}
	if done, err := encode.Document(w, format, "explanation", value); done {
		return err
	}
	if format == "md" {
		return explainMarkdown(w, &e, d)
	}
	t := &table{tableStyle: tableStyle{color: o.Color, width: o.width(), wide: true}}
	t.explain(&e)
	if d != nil {
		t.answers(d.visible())
	}
	if _, err := io.WriteString(w, t.String()); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

func (t *table) explain(e *entry) {
	group := e.Group
	for _, g := range finding.Groups() {
		if g.Letters == e.Group {
			group = g.Title
		}
	}
	t.WriteString(terminal.Paint(t.color, terminal.Bold, e.ID) + "  " + e.Title + "\n\n")
	t.field("severity", e.weight())
	t.field("group", group)
	t.field("why", e.Why)
	t.field("fix", e.Fix)
	t.field("by hand", "`"+e.Verify+"`")
	t.field("from", strings.Join(e.Sources, "; "))
	for i, s := range e.Supports {
		name := ""
		if i == 0 {
			name = "supports"
		}
		t.field(name, fmt.Sprintf("%s %s %s (%s)", s.Name, s.Control, s.Title, s.Strength))
	}
}

func (t *table) field(name, text string) {
	if text != "" && text != "``" {
		writeColumns(&t.Builder, t.width, []int{10}, name, text)
	}
}

// answers is what a node says of the rule.
func (t *table) answers(d *Document) {
	t.title("On " + d.Subject.Label())
	for i := range d.Findings {
		f := &d.Findings[i]
		t.lines("  ", "    ", fmt.Sprintf("%s: %s: %s", f.State, about(f), f.Text))
		t.details(f)
		if f.Remediation != "" {
			t.advice(f)
		}
	}
}

func explainMarkdown(w io.Writer, e *entry, d *Document) error {
	var b strings.Builder
	writeSection(&b, e, "", map[string]string{})
	text := strings.TrimPrefix(b.String(), "\n##") // the section as a document of its own
	if d != nil {
		var answers strings.Builder
		d = d.visible()
		fmt.Fprintf(&answers, "\n## On %s\n\n", code(d.Subject.Label()))
		for i := range d.Findings {
			fmt.Fprintf(&answers, "**%s**\n\n", d.Findings[i].State)
			markdownFinding(&answers, &d.Findings[i])
			answers.WriteString("\n")
		}
		text += strings.TrimRight(answers.String(), "\n") + "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

// WriteProfiles writes what each profile is for and which rules weigh otherwise in
// it; format is table, json or yaml.
func WriteProfiles(w io.Writer, profiles []finding.Profile, format string, o Options) error {
	if done, err := encode.Document(w, format, "profiles", map[string]any{"profiles": profiles}); done {
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
func weighing(p *finding.Profile, severity isolation.Severity) []string {
	var ids []string
	for _, g := range finding.Groups() {
		for _, id := range slices.Sorted(maps.Keys(p.Severities)) {
			if strings.HasPrefix(id, g.Letters+"-") && p.Severities[id] == severity {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
