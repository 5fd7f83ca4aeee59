package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// printPlan shows what apply would do.
func printPlan(out *printer, p *bootstrap.Plan) {
	facts(out, p)
	overview(out, p)
	for _, f := range p.Files {
		if f.Diff != "" {
			out.diff(f.Diff)
		}
	}
	out.problems(p.Problems)
	out.steps(p.Steps, "then runs:")
	conclude(out, p, "apply would change it")
}

// printVerify shows what is not as it should be.
func printVerify(out *printer, p *bootstrap.Plan) {
	for _, f := range p.Files {
		switch {
		case f.Drift != nil && f.Drift.What == "removed":
			out.head(terminal.Red, fmt.Sprintf("✗ /%s was removed after %s", f.Path, when(f.Drift.Written)))
		case f.Drift != nil && f.Status == bootstrap.ToDo:
			out.head(terminal.Red, fmt.Sprintf("✗ /%s was written %s and is otherwise since %s", f.Path, when(f.Drift.Written), when(f.Drift.Since)))
		case f.Drift != nil:
			out.line("! /%s was written %s and changed %s; it still has what is wanted", f.Path, when(f.Drift.Written), when(f.Drift.Since))
		case f.Status == bootstrap.ToDo:
			out.head(terminal.Red, fmt.Sprintf("✗ /%s is not as wanted (%s)", f.Path, f.Action))
		}
		out.diff(f.Diff)
	}
	for _, s := range p.Settings {
		if s.Status != bootstrap.Right {
			out.line("%s /%s: want %s, is %s (%s)", map[bootstrap.Status]string{bootstrap.ToDo: "✗", bootstrap.NotBrought: "✗", bootstrap.RebootPending: "…"}[s.Status], s.Path, s.Value, s.Now, s.Status)
		}
	}
	out.problems(p.Problems)
	out.steps(p.Steps, "has still to run:")
	conclude(out, p, "apply mends it")
}

func facts(out *printer, p *bootstrap.Plan) {
	rows := [][]string{{"PART", "FACT", "VALUE", "FROM"}}
	for _, f := range p.Facts {
		rows = append(rows, []string{f.Part, f.Name, f.Value, f.Source})
	}
	out.table(rows)
}

func overview(out *printer, p *bootstrap.Plan) {
	rows := [][]string{{"PART", "FILE OR SETTING", "STATUS", "WHY"}}
	for _, f := range p.Files {
		status := string(f.Status)
		if f.Action != "" {
			status = f.Action
		}
		rows = append(rows, []string{f.Part, "/" + f.Path, status, f.Why})
	}
	for _, s := range p.Settings {
		rows = append(rows, []string{s.Part, "/" + s.Path + " = " + s.Value, string(s.Status), s.Why})
	}
	out.table(rows)
}

func conclude(out *printer, p *bootstrap.Plan, changes string) {
	if p.Unfinished {
		out.line("A former run was cut off. apply or revert puts that in order.")
	}
	switch p.Outcome() {
	case bootstrap.Impossible:
		if p.NotBrought {
			out.head(terminal.Red, inVain)
			return
		}
		out.head(terminal.Red, "The node can't be made fit before that is changed; nothing is changed while it is so.")
	case bootstrap.ChangesNeeded:
		out.head(terminal.Yellow, "The node is not as the blueprint says; "+changes+".")
	case bootstrap.RebootNeeded:
		if byHand(p) {
			out.head(terminal.Yellow, "All files are right. Do what is named above as left to do, then reboot the node to bring it about.")
			return
		}
		out.head(terminal.Yellow, "All files are right. Reboot the node to bring it about.")
	case bootstrap.Fit:
		if byHand(p) || slices.ContainsFunc(p.Steps, func(s bootstrap.Step) bool { return s.Due && !s.Runs }) {
			out.head(terminal.Yellow, "All files are as the blueprint says; what is left to do is named above.")
			return
		}
		out.head(terminal.Green, "The node is as the blueprint says.")
	}
}

// byHand reports whether a step is left that only a person can do, such as configuring an unknown boot loader.
func byHand(p *bootstrap.Plan) bool {
	return p != nil && slices.ContainsFunc(p.Problems, func(problem state.Problem) bool { return problem.ByHand })
}

func printRefusal(out *printer, refused *bootstrap.RefusedError) {
	out.problems(refused.Problems)
	out.head(terminal.Red, "Nothing was changed.")
}

// printResult shows what apply or revert has done, which may be less than was to do where it failed.
func printResult(out *printer, r *bootstrap.Result, failed bool) {
	rows := [][]string{{"PART", "FILE OR SETTING", "DONE"}}
	for _, f := range r.Changed {
		rows = append(rows, []string{f.Part, "/" + f.Path, f.Action})
	}
	for _, s := range r.Settings {
		rows = append(rows, []string{s.Part, "/" + s.Path, "was " + s.Now})
	}
	out.table(rows)
	for _, k := range r.Kept {
		out.head(terminal.Yellow, fmt.Sprintf("! /%s is kept: %s", terminal.Visible(k.Path), k.Why))
		out.diff(k.Diff)
	}
	out.steps(r.Steps, "not run:")
	if r.Plan != nil {
		out.problems(r.Plan.Problems)
	}
	if !failed {
		concludeResult(out, r)
	}
}

// inVain is said where another reboot is of no use.
const inVain = "All files are right, and a reboot has not brought all of it. Another one would not either: see above."

func concludeResult(out *printer, r *bootstrap.Result) {
	done := len(r.Changed)+len(r.Settings) > 0 || ran(r.Steps)
	left := byHand(r.Plan) || slices.ContainsFunc(r.Steps, func(s bootstrap.Step) bool { return !s.Runs })
	switch {
	case unfit(r) && r.Plan.NotBrought:
		out.head(terminal.Red, inVain)
	case unfit(r):
		out.head(terminal.Red, "The node can't be made fit before what is named above is changed.")
	case r.Reboot && byHand(r.Plan):
		out.head(terminal.Yellow, "Do what is named above as left to do, then reboot the node to bring it about.")
	case r.Reboot:
		out.head(terminal.Yellow, "Reboot the node to bring it about.")
	case keeps(r) && done:
		out.head(terminal.Yellow, "Done, but for what is kept.")
	case keeps(r):
		out.head(terminal.Yellow, "Nothing was changed.")
	case done && left:
		out.head(terminal.Yellow, "Done, but for what is left to do.")
	case left:
		out.head(terminal.Yellow, "Nothing was changed. Do what is named above as left to do.")
	case done, len(r.Kept) > 0:
		out.head(terminal.Green, "Done.")
	default:
		out.head(terminal.Green, "Nothing to do.")
	}
}

func printStatus(out *printer, r *bootstrap.Report) {
	switch {
	case len(r.Files)+len(r.Settings) > 0:
	case len(r.Steps) > 0:
		out.line("No file on this node is of bootstrap's making any more, and what is named below has still to run for that.")
	default:
		out.line("Nothing on this node is of bootstrap's making.")
	}
	if !r.Applied.IsZero() {
		out.line("A blueprint was applied last at %s.", when(r.Applied))
	}
	rows := [][]string{{"PART", "FILE", "WRITTEN", "REVERT", "NOW"}}
	for _, f := range r.Files {
		now, back := "as written", "brings it back"
		if f.Error != "" {
			now, back = f.Error, "keeps it"
		}
		if f.Drift != nil {
			now = f.Drift.What
			if !f.Drift.Since.IsZero() {
				now += " " + when(f.Drift.Since)
			}
		}
		if f.Was == "absent" && f.Error == "" {
			back = "removes it"
		}
		rows = append(rows, []string{f.Part, "/" + f.Path, when(f.At), back, now})
	}
	out.table(rows)
	rows = [][]string{{"PART", "SETTING", "WRITTEN", "WAS", "BECAME"}}
	for _, s := range r.Settings {
		rows = append(rows, []string{s.Part, "/" + s.Path, when(s.At), s.Before, s.After})
	}
	out.table(rows)
	out.steps(r.Steps, "has still to run:")
	if r.Unfinished {
		out.line("A run was cut off. apply or revert puts that in order.")
	}
	if r.Reboot {
		out.line("A reboot is pending.")
	}
}

// printer collects a text for people. What comes from a node is made harmless to a
// terminal.
type printer struct {
	text  bytes.Buffer
	color bool
}

// print writes a value in the form that was asked for.
func (o *options) print(w io.Writer, v any, show func(*printer)) error {
	switch o.format {
	case "json":
		return encode.JSON(w, "the result", v)
	case "yaml":
		return encode.YAML(w, "the result", v)
	}
	out := &printer{color: terminal.Colorful(w)}
	show(out)
	_, err := w.Write(out.text.Bytes())
	return err
}

func (p *printer) line(format string, args ...any) {
	p.text.WriteString(terminal.VisibleLines(fmt.Sprintf(format, args...)))
	p.text.WriteByte('\n')
}

func (p *printer) head(color terminal.Color, text string) {
	p.text.WriteString(terminal.Paint(p.color, color, text))
	p.text.WriteByte('\n')
}

func (p *printer) table(rows [][]string) {
	if len(rows) < 2 {
		return
	}
	var text bytes.Buffer
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = strings.ReplaceAll(terminal.Visible(row[i]), "\t", " ")
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush() // a buffer takes all
	for line := range strings.Lines(text.String()) {
		p.text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	p.text.WriteByte('\n')
}

func (p *printer) diff(text string) {
	for line := range strings.Lines(text) {
		color := terminal.Color("")
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			color = terminal.Bold
		case strings.HasPrefix(line, "+"):
			color = terminal.Green
		case strings.HasPrefix(line, "-"):
			color = terminal.Red
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range cells {
			cells[i] = terminal.Visible(cells[i])
		}
		p.head(color, strings.Join(cells, "\t"))
	}
	if text != "" {
		p.text.WriteByte('\n')
	}
}

func (p *printer) problems(all []state.Problem) {
	for _, problem := range all {
		mark, color := "!", terminal.Yellow
		if problem.Fatal {
			mark, color = "✗", terminal.Red
		}
		p.head(color, mark+" "+terminal.VisibleLines(problem.Text))
		fix := problem.Fix
		if problem.ByHand {
			fix = "left to do: " + fix
		}
		p.line("    %s", strings.ReplaceAll(fix, "\n", "\n    "))
	}
	if len(all) > 0 {
		p.text.WriteByte('\n')
	}
}

// steps lists tools: those that run by themselves and what has become of them, and those that are left to do.
func (p *printer) steps(all []bootstrap.Step, toRun string) {
	for i := range all {
		s := &all[i]
		what := toRun
		switch {
		case !s.Runs:
			what = "left to do:"
		case s.Ran:
			what = "ran:"
		case s.Error != "":
			what = "failed:"
		}
		for _, c := range s.Commands {
			p.line("%s %s", what, c)
		}
	}
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
