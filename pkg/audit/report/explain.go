package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/mapping"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// ExplainFormats returns the names that [WriteExplanation] knows, the default first.
func ExplainFormats() []string { return []string{"text", "json", "md"} }

// WriteExplanation writes all that is known of a rule: what it asks, why, what to do,
// where that is from. With the document of a node it adds what that says, with all
// that was looked at; d is nil where no node was asked.
func WriteExplanation(w io.Writer, r *finding.Rule, d *Document, format string, color bool) error {
	frameworks, err := mapping.Frameworks()
	if err != nil {
		return err
	}
	e := entryOf(r, frameworks)
	switch {
	case format == "json" && d == nil:
		return encode.JSON(w, "explanation", e)
	case format == "json":
		return encode.JSON(w, "explanation", struct {
			entry
			Subject  finding.Subject   `json:"subject"`
			Findings []finding.Finding `json:"findings"`
		}{e, d.Subject, d.Findings})
	case format == "md":
		return explainMarkdown(w, &e, d)
	}
	t := &table{tableStyle: tableStyle{color: color, wide: true}}
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
		writeColumns(&t.Builder, []int{10}, name, text)
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
