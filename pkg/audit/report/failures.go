package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	// shownOfRule is the number of findings of one rule that the table lists, and
	// shownNames the number of functions of one finding.
	shownOfRule = 5
	shownNames  = 4
)

// failures writes the failures of one rule: its ID, the findings, and the fix, once if
// all have the same. The rule's title describes the good state, so it is left out.
func (t *table) failures(g []finding.Finding) {
	worst := &g[0]
	label := "✗ " + strings.ToUpper(string(worst.Severity))
	title := worst.ID
	if worst.Exposure != finding.Unexposed && worst.Exposure != "" {
		title += fmt.Sprintf(" (%s)", worst.Exposure.Words())
	}
	t.out.WriteString("\n")
	first := output.Paint(t.style.color, severityColor(worst.Severity), fmt.Sprintf("%-10s", label)) + "  "
	t.lines(first, strings.Repeat(" ", 12), title)
	same, shown := sameAdvice(g), t.alike(g)
	for i, like := range shown {
		if i == shownOfRule && !t.style.wide {
			// The number counts findings, not groups of similar findings.
			t.more(len(slices.Concat(shown[i:]...)))
			break
		}
		t.failure(like)
		if !same {
			t.advice(&like[0])
		}
	}
	if same {
		t.advice(worst)
	}
}

// alike groups findings that differ only in the device, unless each is to be shown
// with its evidence.
func (t *table) alike(g []finding.Finding) [][]finding.Finding {
	var gathered [][]finding.Finding
	for _, f := range g {
		i := slices.IndexFunc(gathered, func(like []finding.Finding) bool { return !t.style.wide && isAlike(&like[0], &f) })
		if i < 0 {
			gathered = append(gathered, nil)
			i = len(gathered) - 1
		}
		gathered[i] = append(gathered[i], f)
	}
	return gathered
}

func isAlike(f, g *finding.Finding) bool {
	alone := func(f *finding.Finding) bool {
		return f.Device != nil && f.Object == "" && len(f.Devices) <= 1 && f.Waiver == nil
	}
	return alone(f) && alone(g) && f.Text == g.Text && f.Pending == g.Pending && slices.Equal(f.Tenants, g.Tenants) &&
		f.Exposure == g.Exposure && f.Remediation == g.Remediation && f.Verify == g.Verify
}

func (t *table) more(n int) {
	t.lines("  ", "    ", fmt.Sprintf("and %d more: -o wide has them", n))
}

func sameAdvice(g []finding.Finding) bool {
	return !slices.ContainsFunc(g, func(f finding.Finding) bool {
		return f.Remediation != g[0].Remediation || f.Verify != g[0].Verify
	})
}

// failure writes one finding, or several findings that differ only in the device.
func (t *table) failure(like []finding.Finding) {
	f := &like[0]
	text := f.Text
	if f.Device != nil || f.Object != "" {
		var names []string
		for i := range like {
			names = append(names, about(&like[i]))
		}
		if len(names) > 1 || !strings.HasPrefix(f.Text, names[0]) {
			text = t.list(names) + ": " + f.Text
		}
	}
	t.lines("  ", "    ", text)
	t.details(f)
}

// details are the lines below a finding's text.
func (t *table) details(f *finding.Finding) {
	if reach := t.reach(f); reach != "" {
		t.lines("    ", "    ", reach)
	}
	if f.Pending != "" {
		t.lines("    ", "    ", "next boot: "+f.Pending)
	}
	if f.Waiver != nil {
		t.lines("    ", "    ", waiverWords(f.Waiver))
	}
	t.evidence(f)
}

// list returns the first names, and the number of the others.
func (t *table) list(names []string) string {
	if t.style.wide || len(names) <= shownNames+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), len(names)-shownNames)
}

// reach names the functions in reach, if there are others than the device itself, and
// their tenants.
func (t *table) reach(f *finding.Finding) string {
	var parts []string
	if all := addresses(f); len(all) > 1 {
		parts = append(parts, "in reach: "+t.list(all))
	}
	switch len(f.Tenants) {
	case 0:
	case 1:
		parts = append(parts, "tenant "+f.Tenants[0])
	default:
		parts = append(parts, "tenants "+strings.Join(f.Tenants, ", "))
	}
	return strings.Join(parts, "; ")
}

// advice writes the fix, and the command that shows the same by hand.
func (t *table) advice(f *finding.Finding) {
	const indent = "           "
	if f.Remediation != "" {
		t.lines("  fix:     ", indent, f.Remediation)
	}
	if f.Verify != "" {
		// A command stays on one line, so that it can be copied.
		t.out.WriteString("  by hand: " + f.Verify + "\n")
	}
}

func (t *table) evidence(f *finding.Finding) {
	if !t.style.wide {
		return
	}
	for _, e := range f.Evidence {
		t.out.WriteString("      " + evidenceWords(&e) + "\n")
	}
	if f.LeftOut > 0 {
		t.out.WriteString("      " + leftOutWords(f) + "\n")
	}
}

// leftOutWords says how many objects of a pass its evidence does not show.
func leftOutWords(f *finding.Finding) string { return fmt.Sprintf("and %d more alike", f.LeftOut) }

func evidenceWords(e *rule.Evidence) string {
	text := e.Path
	if e.Value != "" || e.Error == "" {
		text += fmt.Sprintf(" = \"%s\"", e.Value)
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	if e.Needs != "" {
		text += " (needs " + e.Needs + ")"
	}
	return text
}

// unknowns lists unknown findings by the privilege that would help, each rule once.
func (t *table) unknowns(found []finding.Finding) {
	if len(found) == 0 {
		return
	}
	t.title("Checks without an answer")
	var needs []string
	for i := range found {
		if n := need(&found[i]); !slices.Contains(needs, n) {
			needs = append(needs, n)
		}
	}
	slices.Sort(needs)
	// Reversed, the empty need comes last: the reader first sees what can be changed.
	slices.Reverse(needs)
	for _, n := range needs {
		if n == "" {
			t.out.WriteString("  the node does not show it:\n")
		} else {
			t.lines("  ", "  ", "with "+n+" it could be read:")
		}
		some := slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return need(&f) != n })
		for _, g := range byRule(some) {
			t.unknown(g)
		}
	}
}

func (t *table) unknown(g []finding.Finding) {
	text := short(&g[0])
	if len(g) > 1 && !t.style.wide {
		text += fmt.Sprintf("; so with %d more", len(g)-1)
	}
	t.lines("    ", "      ", text)
	t.evidence(&g[0])
	for i := 1; i < len(g) && t.style.wide; i++ {
		t.lines("    ", "      ", short(&g[i]))
		t.evidence(&g[i])
	}
}

// need returns the privilege that a finding lacks.
func need(f *finding.Finding) string {
	for _, e := range f.Evidence {
		if e.Needs != "" && e.Error != "" {
			return e.Needs
		}
	}
	return ""
}
