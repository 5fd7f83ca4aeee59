package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// tableStyle is the style of the table.
type tableStyle struct {
	color bool
	width int
	// wide leaves nothing out: every finding, and the evidence.
	wide bool
	// hidden is the number of failures that are left out by severity.
	hidden int
	// failOn is the least severity whose failures make the run fail.
	failOn rule.Severity
}

// table collects the text of a table.
type table struct {
	out   strings.Builder
	style tableStyle
}

func writeTable(w io.Writer, d *Document, style tableStyle) error {
	t := &table{style: style}
	t.verdict(d)
	for _, g := range byRule(d.in(finding.Fail)) {
		t.failures(g)
	}
	t.section("Checks with an error", d.in(finding.Error))
	t.unknowns(d.in(finding.Unknown))
	t.section("Check by hand", d.in(finding.Manual))
	t.waived(d.in(finding.Waived))
	if t.style.wide {
		t.section("Passes", d.in(finding.Pass))
		t.section("Nothing here that the check is about", d.in(finding.NotApplicable))
	}
	t.totals(&d.Summary)
	if _, err := io.WriteString(w, t.out.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// verdict writes the summary in one line.
func (t *table) verdict(d *Document) {
	var mark string
	var color output.Color
	switch {
	case d.Summary.FailsAt(t.style.failOn):
		mark, color = "✗", output.Red
	case d.Summary.Fails():
		mark, color = "!", output.Yellow
	case d.Summary.Verdict == finding.Pass:
		mark, color = "✓", output.Green
	default:
		mark, color = "?", output.Yellow
	}
	name := d.Subject.Label()
	lines := output.Wrap(mark+" "+name+" "+verdictWords(&d.Summary, t.style.failOn), t.style.width)
	for _, line := range lines {
		t.out.WriteString(output.Paint(t.style.color, color, line) + "\n")
	}
	facts := []string{
		"profile " + d.Profile, fmt.Sprintf("%s of %s", output.Count(d.Summary.Rules, "check"), output.Count(d.Summary.Devices, "PCI function")), d.Subject.Time,
	}
	if d.Subject.Kernel != "" {
		facts = append(facts, "kernel "+d.Subject.Kernel)
	}
	t.lines("  ", "  ", strings.Join(facts, ", "))
	for i := range d.RuleFiles {
		t.lines("  ", "  ", "with "+output.Count(len(d.RuleFiles[i].Rules), "rule")+" of "+d.RuleFiles[i].Words())
	}
	if d.Basis != nil && d.Basis.By != finding.ByPlugin {
		t.lines("  ", "  ", d.Basis.String())
	}
}

// verdictWords returns a summary in words, and whether the run fails because of it.
func verdictWords(s *finding.Summary, failOn rule.Severity) string {
	n, what := unclear(s)
	switch {
	case s.FailsAt(failOn):
		return "fails: " + failedWords(s) + affectedWords(s)
	case s.Fails() && n > 0:
		return fmt.Sprintf("is undetermined at --fail-on %s: %s could not tell; less severe failures: %s",
			failOn, output.Count(n, what), failedWords(s)+affectedWords(s))
	case s.Fails():
		return fmt.Sprintf("passes at --fail-on %s; less severe failures: %s", failOn, failedWords(s)+affectedWords(s))
	case n > 0:
		return fmt.Sprintf("is undetermined: nothing fails, but %s could not tell", output.Count(n, what))
	}
	if waived := s.States[finding.Waived]; waived > 0 {
		return fmt.Sprintf("passes, %s accepted by waivers", output.Count(waived, "failure"))
	}
	return "passes"
}

// unclear counts the checks that could not tell, or the findings if each of these checks also fails: a check counts by its worst finding.
func unclear(s *finding.Summary) (n int, what string) {
	if n := s.RuleStates[finding.Unknown] + s.RuleStates[finding.Error]; n > 0 {
		return n, "check"
	}
	return s.States[finding.Unknown] + s.States[finding.Error], "finding"
}

// affectedWords names the pods and tenants that the failures affect, or returns "" if there are none.
func affectedWords(s *finding.Summary) string {
	if s.Tenants == 0 {
		return ""
	}
	return fmt.Sprintf("; %s and %s affected", output.Count(s.Tenants, "tenant"), output.Count(s.Claims, "claim"))
}

// failedWords counts the checks that fail, each once, as the blocks below do.
func failedWords(s *finding.Summary) string {
	var words []string
	for _, severity := range finding.Severities() {
		if n := s.FailedRules[severity]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, severity))
		}
	}
	text := strings.Join(words, ", ")
	if rules, found := s.RuleStates[finding.Fail], s.States[finding.Fail]; found > rules {
		text += fmt.Sprintf(" (%s)", output.Count(found, "finding"))
	}
	return text
}

// lines writes text within the width, the first line behind first, the others
// behind indent.
func (t *table) lines(first, indent, text string) {
	for i, line := range output.Wrap(text, t.style.width-len(indent)) {
		if i == 0 {
			t.out.WriteString(first + line + "\n")
		} else {
			t.out.WriteString(indent + line + "\n")
		}
	}
}

// section lists findings that need few words.
func (t *table) section(title string, found []finding.Finding) {
	if len(found) == 0 {
		return
	}
	t.title(title)
	for _, g := range byRule(found) {
		for i, f := range g {
			if i == shownOfRule && !t.style.wide {
				t.more(len(g) - i)
				break
			}
			t.lines("  ", "    ", short(&f))
			t.evidence(&f)
		}
		if f := &g[0]; f.State == finding.Manual {
			t.advice(f)
		}
	}
}

func (t *table) title(text string) {
	t.out.WriteString("\n" + output.Paint(t.style.color, output.Bold, text) + "\n")
}

func short(f *finding.Finding) string {
	if f.Device == nil && f.Object == "" || strings.HasPrefix(f.Text, about(f)) {
		return f.ID + "  " + f.Title + ": " + f.Text
	}
	return f.ID + "  " + f.Title + ": " + about(f) + ": " + f.Text
}

// waived lists the accepted findings. Findings that one waiver covers are listed together.
func (t *table) waived(found []finding.Finding) {
	if len(found) == 0 {
		return
	}
	t.title("Accepted for a time")
	for _, same := range byWaiver(found, t.style.wide) {
		f := &same[0]
		text := about(f) + ": " + f.Text
		if len(same) > 1 {
			var names []string
			for i := range same {
				names = append(names, about(&same[i]))
			}
			text = t.list(names)
		}
		t.lines("  ", "    ", fmt.Sprintf("%s  %s: %s", f.ID, f.Title, text))
		t.lines("    ", "    ", waiverWords(f.Waiver))
		t.evidence(f)
	}
}

// byWaiver groups the findings that one waiver covers, unless each is to be shown with its evidence.
func byWaiver(found []finding.Finding, wide bool) [][]finding.Finding {
	var groups [][]finding.Finding
	for _, f := range found {
		i := slices.IndexFunc(groups, func(g []finding.Finding) bool { return !wide && *g[0].Waiver == *f.Waiver })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func waiverWords(w *finding.Waiver) string {
	if w.Expired {
		return fmt.Sprintf("the waiver by %s ended with %s: %s", w.Author, w.Until, w.Reason)
	}
	return fmt.Sprintf("accepted until %s by %s: %s", w.Until, w.Author, w.Reason)
}

func (t *table) totals(s *finding.Summary) {
	var words []string
	for _, state := range finding.States() {
		words = append(words, fmt.Sprintf("%s %d", state, s.RuleStates[state]))
	}
	t.out.WriteString("\n")
	t.lines("", "", output.Count(s.Rules, "check")+", each by its worst finding: "+strings.Join(words, ", "))
	if t.style.hidden > 0 {
		t.lines("", "", fmt.Sprintf("%s of less severity not shown: --severity info shows all", output.Count(t.style.hidden, "failure")))
	}
}

// byRule gathers findings of one rule and severity, in their order.
func byRule(found []finding.Finding) [][]finding.Finding {
	var groups [][]finding.Finding
	for _, f := range found {
		i := slices.IndexFunc(groups, func(g []finding.Finding) bool { return g[0].ID == f.ID })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

func severityColor(s rule.Severity) output.Color {
	switch s {
	case rule.Critical, rule.High:
		return output.Red
	case rule.Medium:
		return output.Yellow
	default:
		return output.Bold
	}
}

// visible returns a copy with [output.Visible] applied to every text.
func (d *Document) visible() *Document {
	r := *d.Report
	r.Subject = visibleSubject(r.Subject)
	r.Profile = output.Visible(r.Profile)
	makeVisible(&r.FailOn)
	r.UnusedWaivers = slices.Clone(r.UnusedWaivers)
	for i := range r.UnusedWaivers {
		visibleWaiver(&r.UnusedWaivers[i])
	}
	r.RuleFiles = slices.Clone(r.RuleFiles)
	for i := range r.RuleFiles {
		makeVisible(&r.RuleFiles[i].Name, &r.RuleFiles[i].SHA256)
		r.RuleFiles[i].Rules = slices.Clone(r.RuleFiles[i].Rules)
		for j := range r.RuleFiles[i].Rules {
			makeVisible(&r.RuleFiles[i].Rules[j])
		}
	}
	r.Findings = make([]finding.Finding, len(d.Findings))
	for i := range d.Findings {
		r.Findings[i] = visibleFinding(d.Findings[i])
	}
	shown := *d
	shown.Report = &r
	return &shown
}

func visibleSubject(s finding.Subject) finding.Subject {
	makeVisible(&s.Kind, &s.Name, &s.Root, &s.BootID, &s.Kernel, &s.Time, &s.Version, &s.LeftOut)
	return s
}

func visibleFinding(f finding.Finding) finding.Finding {
	makeVisible(&f.ID, &f.Title, &f.Object, &f.Text, &f.Pending, &f.Remediation, &f.Verify)
	makeVisible(&f.State)
	makeVisible(&f.Severity)
	makeVisible(&f.Exposure)
	f.Tenants = slices.Clone(f.Tenants)
	for i := range f.Tenants {
		makeVisible(&f.Tenants[i])
	}
	f.Evidence = slices.Clone(f.Evidence)
	for i := range f.Evidence {
		e := &f.Evidence[i]
		makeVisible(&e.Path, &e.Value, &e.How, &e.Error, &e.Needs)
	}
	if f.Waiver != nil {
		w := *f.Waiver
		visibleWaiver(&w)
		f.Waiver = &w
	}
	return f
}

func visibleWaiver(w *finding.Waiver) {
	makeVisible(&w.Rule, &w.Scope, &w.Until, &w.Reason, &w.Author)
}

func makeVisible[T ~string](texts ...*T) {
	for _, text := range texts {
		*text = T(output.Visible(string(*text)))
	}
}
