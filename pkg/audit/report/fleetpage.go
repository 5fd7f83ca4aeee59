package report

import (
	"bytes"
	"cmp"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// FleetFormats returns the formats of [Fleet.Write].
func FleetFormats() []string { return []string{"html", "table", "json", "yaml"} }

// Write writes the posture in a format. Width is the terminal's, for the table; 0 means no limit.
func (f *Fleet) Write(w io.Writer, format string, width int) error {
	if done, err := output.Document(w, format, "posture", f); done {
		return err
	}
	if format == "table" {
		return f.writeTable(w, width)
	}
	return f.writePage(w)
}

func (f *Fleet) writeTable(w io.Writer, width int) error {
	rows := [][]string{append([]string{"NODE", "VERDICT", "FAILS", "NO ANSWER", "TREND"}, f.Groups...)}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		row := []string{output.Visible(n.Name), string(n.Verdict), strconv.Itoa(n.Now.Fails), strconv.Itoa(n.Now.NoAnswer), n.Trend()}
		for _, c := range n.Cells {
			row = append(row, c.Text())
		}
		rows = append(rows, row)
	}
	lines := output.Columns(rows, width)
	lines = append(lines, f.checkLines(width)...)
	if len(f.Unseen) > 0 {
		unseen := output.Visible("No report " + f.Chosen.String() + ": " + strings.Join(f.Unseen, ", "))
		lines = append(append(lines, ""), output.Wrap(unseen, cmp.Or(width, math.MaxInt))...)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return fmt.Errorf("write posture: %w", err)
		}
	}
	return nil
}

// checkLines lists the failing checks with the number of their nodes.
func (f *Fleet) checkLines(width int) []string {
	if len(f.Checks) == 0 {
		return nil
	}
	rows := [][]string{{"CHECK", "SEVERITY", "NODES", "TITLE"}}
	for i := range f.Checks {
		c := &f.Checks[i]
		rows = append(rows, []string{output.Visible(c.ID), string(c.Severity), fmt.Sprintf("%d of %d", len(c.Nodes), len(f.Nodes)), output.Visible(c.Title)})
	}
	return append([]string{""}, output.Columns(rows, width)...)
}

// Trend compares the failing rules of the oldest and the latest report; empty for a node with one report. The worst severity whose
// number changes decides: a node with fewer failures got worse if one of them is critical now. If the sum does not show this
// change, the text has the numbers of that severity, too. A question mark says that the number fell, or stayed, only because checks that
// failed have no answer now.
func (n *fleetNode) Trend() string {
	if n.Reports < 2 {
		return ""
	}
	sum := n.Now.Fails - n.Before.Fails
	text := fmt.Sprintf("%d → %d ", n.Before.Fails, n.Now.Fails)
	for _, s := range finding.Severities() {
		before, now := n.Before.Failed[s], n.Now.Failed[s]
		switch lost := n.unanswered[s]; {
		case lost > 0 && now <= before && now+lost >= before:
			return text + "?"
		case now == before:
		// The sum changes in the same direction as the worst severity that changes, so that it misleads nobody.
		case cmp.Compare(sum, 0) == cmp.Compare(now, before):
			return text + sign(now-before)
		default:
			return text + fmt.Sprintf("%s (%s %d → %d)", sign(now-before), s, before, now)
		}
	}
	return text + sign(0)
}

// sign is the direction of a change in the number of failures.
func sign(change int) string {
	switch {
	case change > 0:
		return "▲"
	case change < 0:
		return "▼"
	}
	return "="
}

// Text is the number of the worst failing rules with the letter of their severity, "+" and the number of the less severe ones, and
// a question mark with those without an answer: "1H+3 ?2".
func (c fleetCell) Text() string {
	var parts []string
	if c.Fails > 0 {
		text := fmt.Sprintf("%d%.1s", c.OfWorst, strings.ToUpper(string(c.Worst)))
		if less := c.Fails - c.OfWorst; less > 0 {
			text += fmt.Sprintf("+%d", less)
		}
		parts = append(parts, text)
	}
	if c.NoAnswer > 0 {
		parts = append(parts, fmt.Sprintf("?%d", c.NoAnswer))
	}
	return strings.Join(parts, " ")
}

// Class colors a cell of the heat map.
func (c fleetCell) Class() string {
	switch {
	case c.Fails > 0:
		return "h-" + string(c.Worst)
	case c.NoAnswer > 0:
		return "h-unknown"
	}
	return "h-none"
}

// Classes returns the CSS classes by which the page's filter finds the node.
func (n *fleetNode) Classes() string {
	var text strings.Builder
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"is-fail", n.Verdict == finding.Fail},
		{"has-critical", n.Now.Failed[rule.Critical] > 0},
		{"has-high", n.Now.Failed[rule.Critical]+n.Now.Failed[rule.High] > 0},
		{"has-unknown", n.Now.NoAnswer > 0},
	} {
		if c.is {
			text.WriteString(" " + c.name)
		}
	}
	return text.String()
}

// shownNodes is the number of nodes that the page names for each check; `-o json` has all.
const shownNodes = 8

// Some returns the names of the first nodes, which are the worst.
func (c *fleetCheck) Some() string {
	text := strings.Join(c.Nodes[:min(len(c.Nodes), shownNodes)], ", ")
	if more := len(c.Nodes) - shownNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Failing counts the nodes whose reports say that they fail, with the severity of `node --fail-on`.
func (f *Fleet) Failing() (n int) {
	for i := range f.Nodes {
		if f.Nodes[i].Verdict == finding.Fail {
			n++
		}
	}
	return n
}

// Period is the time from the oldest report of a node to the latest one.
func (f *Fleet) Period() (from, to string) {
	for i := range f.Nodes {
		if n := &f.Nodes[i]; from == "" || n.From < from {
			from = n.From
		}
		to = max(to, f.Nodes[i].To)
	}
	return from, to
}

// Totals counts failing rules on all nodes, by the oldest and the latest reports.
func (f *Fleet) Totals() (before, now int) {
	for i := range f.Nodes {
		before, now = before+f.Nodes[i].Before.Fails, now+f.Nodes[i].Now.Fails
	}
	return before, now
}

// fleetView is the input of the page's template.
type fleetView struct {
	Fleet       *Fleet
	From, To    string
	Before, Now int
	Style       template.CSS
	Policy      string
	Severities  []string
}

// writePage writes a page that loads nothing and has no script. html/template escapes text from reports.
func (f *Fleet) writePage(w io.Writer) error {
	t, err := template.New("fleet").Funcs(template.FuncMap{"plural": output.Plural}).Parse(fleetTemplate)
	if err != nil {
		return fmt.Errorf("parse the page's template: %w", err)
	}
	v := fleetView{Fleet: f}
	v.From, v.To = f.Period()
	v.Style = template.CSS(fleetStyle + paperFoot(fmt.Sprintf("%s, %s to %s", output.Count(len(f.Nodes), "node"), v.From, v.To))) //nolint:gosec // our own file, and escaped times
	// The hash permits this style sheet only, so that text from a report could bring neither styles nor scripts.
	v.Policy = "default-src 'none'; style-src '" + hash(string(v.Style)) + "'; base-uri 'none'; form-action 'none'"
	v.Before, v.Now = f.Totals()
	for _, s := range finding.Severities() {
		v.Severities = append(v.Severities, string(s))
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return fmt.Errorf("fill in the page: %w", err)
	}
	if _, err := io.WriteString(w, output.VisibleLines(b.String())); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

var (
	//go:embed fleet.html
	fleetTemplate string
	//go:embed fleet.css
	fleetStyle string
)
