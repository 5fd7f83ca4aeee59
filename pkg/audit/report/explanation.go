package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ExplainFormats returns the names that [WriteExplanation] knows, the default first.
func ExplainFormats() []string { return []string{"text", "json", "yaml", "md"} }

// WriteExplanation writes a rule completely: what it checks, why, how to fix a failure, and its sources. With the document
// of a node it adds the results there, with all evidence; d is nil without a node.
func WriteExplanation(w io.Writer, r *rule.Rule, d *Document, format string, o Options) error {
	frameworks, err := finding.Frameworks()
	if err != nil {
		return err
	}
	e := newEntry(r, frameworks)
	var value any = e
	if d != nil {
		value = struct {
			entry
			Subject  finding.Subject   `json:"subject"`
			Findings []finding.Finding `json:"findings"`
		}{e, d.Subject, d.Findings}
	}
	if done, err := output.Document(w, format, "explanation", value); done {
		return err
	}
	if format == "md" {
		return explainMarkdown(w, &e, d)
	}
	t := &table{style: tableStyle{color: o.Color, width: o.width(), wide: true}}
	t.explain(&e)
	if d != nil {
		t.answers(d.visible())
	}
	if _, err := io.WriteString(w, t.out.String()); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

func (t *table) explain(e *entry) {
	group := e.Group
	for _, g := range rule.Groups() {
		if g.Letters == e.Group {
			group = g.Title
		}
	}
	t.out.WriteString(output.Paint(t.style.color, output.Bold, e.ID) + "  " + e.Title + "\n\n")
	t.field("severity", e.Weight())
	t.field("group", group)
	t.field("why", e.Why)
	t.field("fix", e.Fix)
	t.field("by hand", "`"+e.Verify+"`")
	t.settings(e.Settings)
	t.field("file", e.File)
	t.field("codes", strings.Join(e.codes(), ", "))
	t.field("from", strings.Join(e.Sources, "; "))
	for i, s := range e.Supports {
		name := ""
		if i == 0 {
			name = "supports"
		}
		t.field(name, fmt.Sprintf("%s %s %s (%s)", s.Name, s.Control, s.Title, s.Strength))
	}
}

// settings writes what a rule of an organization compares, and where each setting is read.
func (t *table) settings(all []rule.Setting) {
	for i := range all {
		t.field([]string{"wants", ""}[min(i, 1)], all[i].Wanted())
		t.field("", "read in "+all[i].ReadIn())
	}
}

func (t *table) field(name, text string) {
	if text != "" && text != "``" {
		writeColumns(&t.out, t.style.width, []int{10}, name, text)
	}
}

// answers writes a node's findings of the rule.
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
	page := struct {
		ruleSection
		Node *Document
	}{ruleSection: e.section("", map[string]string{})}
	if d != nil {
		page.Node = d.visible()
	}
	return fillIn(w, "explanation", &page)
}
