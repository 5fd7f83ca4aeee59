package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// CandidateFormats returns the formats that [WriteCandidate] knows, the default first.
func CandidateFormats() []string { return []string{"table", "json", "yaml"} }

// CandidateOptions say how to print.
type CandidateOptions struct {
	// Show is the least severity of the checks that a table shows.
	Show  rule.Severity
	Color bool
	// Width is the width of a table in characters; 0 is [output.PageWidth].
	Width int
}

// WriteCandidate writes a candidate in one of [CandidateFormats].
func WriteCandidate(w io.Writer, c *Candidate, format string, o CandidateOptions) error {
	if done, err := output.Document(w, format, "candidate", c); done || err != nil {
		return err
	}
	p := &page{options: o}
	p.options.Width = cmp.Or(p.options.Width, output.PageWidth)
	p.head(c)
	p.problems("Solve first: bootstrap changes nothing until then", c.Refusals)
	p.changes(c)
	p.rules("Then pass", c.Repaired)
	p.remaining(c.Remaining)
	p.problems("By hand: bootstrap can't do or verify it", c.ByHand)
	p.rules("Known only after the reboot: run the audit again", c.Open)
	p.unknown(c.Unknown)
	if _, err := io.WriteString(w, p.out.String()); err != nil {
		return fmt.Errorf("write the candidate: %w", err)
	}
	return nil
}

// page collects the text of a page.
type page struct {
	out     strings.Builder
	options CandidateOptions
}

// lines writes text within the width, with first before the first line and indent before all others.
func (p *page) lines(first, indent, text string) {
	for i, line := range output.Wrap(output.Visible(text), p.options.Width-len(indent)) {
		if i > 0 {
			first = indent
		}
		p.out.WriteString(first + line + "\n")
	}
}

func (p *page) title(text string) {
	p.out.WriteString("\n" + output.Paint(p.options.Color, output.Bold, text) + "\n")
}

func (p *page) head(c *Candidate) {
	mark, color := "✓", output.Green
	switch {
	case c.Verdict == Unfit:
		mark, color = "✗", output.Red
	case c.Verdict != Fit, c.Undetermined():
		mark, color = "!", output.Yellow
	}
	for _, line := range output.Wrap(mark+" "+output.Visible(c.Subject.Label())+" is "+c.words(), p.options.Width) {
		p.out.WriteString(output.Paint(p.options.Color, color, line) + "\n")
	}
	words := []string{"profile " + c.Profile, "blueprint: " + c.Blueprint, c.Subject.Time}
	if c.Subject.Kernel != "" {
		words = append(words, "kernel "+c.Subject.Kernel)
	}
	p.lines("  ", "  ", strings.Join(words, ", "))
	for i := range c.RuleFiles {
		p.lines("  ", "  ", "with "+output.Count(len(c.RuleFiles[i].Rules), "rule")+" of "+c.RuleFiles[i].Words())
	}
	if c.Basis != nil && c.Basis.By != finding.ByPlugin {
		p.lines("  ", "  ", c.Basis.String())
	}
}

// words returns the verdict with its reasons.
func (c *Candidate) words() string {
	solve := output.Count(len(c.Refusals), "problem")
	failing := c.Failing()
	fail := fmt.Sprintf("%s of severity %s or worse would still fail", output.Count(rulesIn(failing), "check"), c.FailOn)
	switch {
	case len(failing) > 0 && len(c.Refusals) > 0:
		return fmt.Sprintf("%s: %s, also after you solve %s and run bootstrap", Unfit, fail, solve)
	case len(failing) > 0:
		return fmt.Sprintf("%s: %s, also after bootstrap", Unfit, fail)
	case len(c.Refusals) > 0:
		return fmt.Sprintf("%s until you solve %s, then %s", Unfit, solve, c.outcome()) + c.condition()
	}
	return string(c.Verdict) + c.condition()
}

// condition describes the conditions of the verdict.
func (c *Candidate) condition() string {
	unknown := slices.DeleteFunc(slices.Clone(c.Unknown), func(f finding.Finding) bool { return f.Severity.Compare(c.FailOn) > 0 })
	open := slices.DeleteFunc(slices.Clone(c.Open), func(r CandidateRule) bool { return r.Severity.Compare(c.FailOn) > 0 })
	var conditions []string
	if len(open) > 0 {
		conditions = append(conditions, output.Count(len(open), "check")+" that only the reboot can answer")
	}
	if n := rulesIn(unknown); n > 0 {
		conditions = append(conditions, output.Count(n, "check")+" without an answer")
	}
	if len(conditions) == 0 {
		return ""
	}
	return ", provided that these pass: " + strings.Join(conditions, ", ")
}

func rulesIn(found []finding.Finding) int { return len(byRule(found)) }

func byRule(found []finding.Finding) [][]finding.Finding {
	var all [][]finding.Finding
	for _, f := range found {
		i := slices.IndexFunc(all, func(g []finding.Finding) bool { return g[0].ID == f.ID })
		if i < 0 {
			i, all = len(all), append(all, nil)
		}
		all[i] = append(all[i], f)
	}
	return all
}

func (p *page) problems(title string, problems []state.Problem) {
	if len(problems) == 0 {
		return
	}
	p.title(title)
	for i := range problems {
		p.lines("  ", "  ", problems[i].WithCode())
		p.fix(problems[i].Fix)
	}
}

// fix writes bootstrap's fix of a problem. It may end with lines of a configuration file, such as OpenShift's MachineConfig, whose
// indentation is part of it.
func (p *page) fix(text string) {
	first, rest, _ := strings.Cut(strings.TrimRight(text, "\n"), "\n")
	const indent = "         "
	p.lines("    fix: ", indent, first)
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") {
			p.out.WriteString(indent + output.Visible(line) + "\n")
			continue
		}
		p.lines(indent, indent, line)
	}
}

func (p *page) changes(c *Candidate) {
	if len(c.Changes) == 0 {
		return
	}
	p.title("Bootstrap would change")
	for i := range c.Changes {
		p.change(&c.Changes[i])
	}
	if len(c.Commands) > 0 {
		p.lines("  then runs:  ", strings.Repeat(" ", 14), strings.Join(c.Commands, "; "))
	}
	if c.Reboot {
		p.lines("  ", "  ", "A reboot is due after that. Bootstrap does not reboot the node.")
	}
}

func (p *page) change(c *CandidateChange) {
	what := strings.Join(c.Files, ", ")
	if len(c.Arguments) > 0 {
		what += " (" + strings.Join(c.Arguments, " ") + ")"
	}
	p.lines(fmt.Sprintf("  %-11s ", c.Part), strings.Repeat(" ", 14), what)
	if len(c.Repairs) > 0 {
		p.lines(strings.Repeat(" ", 14), strings.Repeat(" ", 14), "repairs "+strings.Join(c.Repairs, ", "))
	}
}

func (p *page) rules(title string, rules []CandidateRule) {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r CandidateRule) bool { return p.hides(r.Severity) })
	if len(rules) == 0 {
		return
	}
	p.title(title)
	for _, r := range rules {
		p.lines(fmt.Sprintf("  %-9s %-9s ", r.ID, r.Severity), strings.Repeat(" ", 22), r.Title)
	}
}

func (p *page) hides(s rule.Severity) bool {
	return p.options.Show != "" && s.Compare(p.options.Show) > 0
}

// remaining writes each check once, with the fix of its first finding.
func (p *page) remaining(found []finding.Finding) {
	found = slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return p.hides(f.Severity) })
	if len(found) == 0 {
		return
	}
	p.title("Remain: bootstrap can't change them")
	for _, g := range byRule(found) {
		p.lines(fmt.Sprintf("  %-9s %-9s ", g[0].ID, g[0].Severity), strings.Repeat(" ", 22), about(g))
		if g[0].Remediation != "" {
			p.lines("    fix: ", "         ", g[0].Remediation)
		}
	}
}

// about returns the first finding of a check, and the number of the others.
func about(g []finding.Finding) string {
	text := g[0].Text
	if g[0].Object != "" && !strings.Contains(text, g[0].Object) {
		text = g[0].Object + ": " + text
	}
	if more := len(g) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func (p *page) unknown(found []finding.Finding) {
	found = slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return p.hides(f.Severity) })
	if len(found) == 0 {
		return
	}
	p.title("Unknown, with bootstrap or without")
	for _, g := range byRule(found) {
		p.lines(fmt.Sprintf("  %-9s %-9s ", g[0].ID, g[0].Severity), strings.Repeat(" ", 22), about(g))
	}
}
