package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// printPlan shows the actions of an apply.
func printPlan(out *printer, p *bootstrap.Plan) {
	notice(out, p)
	facts(out, p)
	overview(out, p)
	out.problems(p.Problems) // above the diffs, which may fill many screens
	out.talos(p.Talos)
	diffs(out, p)
	out.steps(p.Steps, "then runs:")
	conclude(out, p, "Run apply to change it")
}

// diffs shows each change of a file, or with --summary their number.
func diffs(out *printer, p *bootstrap.Plan) {
	changes := 0
	for _, f := range p.Files {
		if f.Diff == "" {
			continue
		}
		changes++
		if !out.summary {
			out.diff(f.Diff)
		}
	}
	if out.summary && changes > 0 {
		out.line("%s. Without --summary, plan shows each as a diff.\n", output.Count(changes, "file changes", "files change"))
	}
}

// printVerify shows the differences from the blueprint.
func printVerify(out *printer, p *bootstrap.Plan) {
	notice(out, p)
	for _, f := range p.Files {
		switch {
		case f.Drift != nil && f.Drift.What == "removed":
			out.head(output.Red, fmt.Sprintf("✗ /%s was removed after %s", f.Path, when(f.Drift.Written)))
		case f.Drift != nil && f.Status == bootstrap.ToDo:
			out.head(output.Red, fmt.Sprintf("✗ /%s was written %s and has differed since %s", f.Path, when(f.Drift.Written), when(f.Drift.Since)))
		case f.Drift != nil:
			out.line("! /%s was written %s and changed %s; it still has the required content", f.Path, when(f.Drift.Written), when(f.Drift.Since))
		case f.Status == bootstrap.ToDo:
			out.head(output.Red, fmt.Sprintf("✗ /%s does not match the blueprint (%s)", f.Path, f.Action))
		}
		out.diff(f.Diff)
	}
	for _, s := range p.Settings {
		if s.Status != bootstrap.Right {
			out.line("%s /%s: want %s, is %s (%s)", map[bootstrap.Status]string{bootstrap.ToDo: "✗", bootstrap.NotBrought: "✗", bootstrap.RebootPending: "…"}[s.Status], s.Path, s.Value, s.Now, s.Status)
		}
	}
	out.problems(p.Problems)
	out.steps(p.Steps, "still to run:")
	conclude(out, p, "Run apply to fix it")
}

func facts(out *printer, p *bootstrap.Plan) {
	rows := [][]string{{"PART", "FACT", "VALUE", "FROM"}}
	for _, f := range p.Facts {
		rows = append(rows, []string{f.Part, f.Name, f.Value, f.Source})
	}
	out.table(rows, "FROM", "PART")
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
	out.table(rows, "PART", "WHY")
}

func conclude(out *printer, p *bootstrap.Plan, changes string) {
	if p.Unfinished {
		out.line("An earlier run was interrupted. Run apply or revert to complete it.")
	}
	switch p.Outcome() {
	case bootstrap.Impossible:
		if p.NotBrought {
			out.head(output.Red, inVain)
			return
		}
		out.head(output.Red, "The node can't match the blueprint until you fix the problems above. apply changes nothing until then.")
	case bootstrap.ChangesNeeded:
		out.head(output.Yellow, "The node does not match the blueprint. "+changes+".")
	case bootstrap.RebootNeeded:
		if byHand(p) {
			out.head(output.Yellow, "All files match. Perform the manual steps above, then reboot the node.")
			return
		}
		out.head(output.Yellow, "All files match. Reboot the node to put them into effect.")
	case bootstrap.Fit:
		if byHand(p) && len(p.Files) == 0 {
			out.head(output.Yellow, "Bootstrap writes no files here. Perform the manual steps above.")
			return
		}
		if byHand(p) || slices.ContainsFunc(p.Steps, func(s bootstrap.Step) bool { return s.Due && !s.Runs }) {
			out.head(output.Yellow, "All files match the blueprint. Perform the manual steps above.")
			return
		}
		out.head(output.Green, "The node matches the blueprint.")
	}
}

// byHand reports whether a manual step remains, such as configuring an unknown boot loader.
func byHand(p *bootstrap.Plan) bool {
	return p != nil && slices.ContainsFunc(p.Problems, func(problem state.Problem) bool { return problem.ByHand })
}

func printRefusal(out *printer, refused *bootstrap.RefusedError) {
	out.problems(refused.Problems)
	out.head(output.Red, "Nothing was changed.")
}

// printResult shows the result of apply or revert. If it failed, only a part may be done.
func printResult(out *printer, r *bootstrap.Result, failed bool) {
	rows := [][]string{{"PART", "FILE OR SETTING", "DONE"}}
	for _, f := range r.Changed {
		rows = append(rows, []string{f.Part, "/" + f.Path, done(f.Action)})
	}
	for _, s := range r.Settings {
		rows = append(rows, []string{s.Part, "/" + s.Path, "was " + s.Now})
	}
	out.table(rows, "PART")
	for _, k := range r.Kept {
		out.head(output.Yellow, fmt.Sprintf("! /%s is kept: %s", output.Visible(k.Path), k.Why))
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

// done says what was done to a file by an action of [bootstrap.FilePlan].
func done(action string) string {
	if past, ok := map[string]string{"create": "created", "change": "changed", "take back": "reverted"}[action]; ok {
		return past
	}
	return action
}

// inVain is printed if a reboot did not apply the files, and another one would not either.
const inVain = "All files match, but a reboot did not apply all of them, and another reboot would not either. See the problems above."

func concludeResult(out *printer, r *bootstrap.Result) {
	done := len(r.Changed)+len(r.Settings) > 0 || ran(r.Steps)
	left := byHand(r.Plan) || slices.ContainsFunc(r.Steps, func(s bootstrap.Step) bool { return !s.Runs })
	switch {
	case unfit(r) && r.Plan.NotBrought:
		out.head(output.Red, inVain)
	case unfit(r):
		out.head(output.Red, "The node can't match the blueprint until you fix the problems above.")
	case r.Reboot && byHand(r.Plan):
		out.head(output.Yellow, "Perform the manual steps above, then reboot the node.")
	case r.Reboot:
		out.head(output.Yellow, "Reboot the node to put the changes into effect.")
	case keeps(r) && done:
		out.head(output.Yellow, "Done, except for the files that were kept.")
	case keeps(r):
		out.head(output.Yellow, "Nothing was changed.")
	case done && left:
		out.head(output.Yellow, "Done, except for the manual steps above.")
	case left:
		out.head(output.Yellow, "Nothing was changed. Perform the manual steps above.")
	case done, len(r.Kept) > 0:
		out.head(output.Green, "Done.")
	default:
		out.head(output.Green, "Nothing to do.")
	}
}

func printStatus(out *printer, r *bootstrap.Report) {
	switch {
	case len(r.Files)+len(r.Settings) > 0:
	case len(r.Steps) > 0:
		out.line("All files are reverted. The commands below still have to run.")
	default:
		out.line("Bootstrap has changed nothing on this node.")
	}
	if !r.Applied.IsZero() {
		out.line("A blueprint was last applied at %s.", when(r.Applied))
	}
	rows := [][]string{{"PART", "FILE", "WRITTEN", "REVERT", "NOW"}}
	for _, f := range r.Files {
		now, back := "as written", "restores it"
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
	out.table(rows, "PART", "WRITTEN", "REVERT")
	rows = [][]string{{"PART", "SETTING", "WRITTEN", "WAS", "BECAME"}}
	for _, s := range r.Settings {
		rows = append(rows, []string{s.Part, "/" + s.Path, when(s.At), s.Before, s.After})
	}
	out.table(rows, "PART", "WRITTEN")
	out.steps(r.Steps, "still to run:")
	if r.Unfinished {
		out.line("A run was interrupted. Run apply or revert to complete it.")
	}
	if r.Reboot {
		out.line("A reboot is pending.")
	}
}

// printer collects text output. It escapes control characters in text from a node.
type printer struct {
	text  bytes.Buffer
	color bool
	// width is the width of tables and problems; 0 means no limit.
	width int
	// summary leaves out the diffs of a plan.
	summary bool
}

// print writes a value in the format of -o.
func (o *options) print(w io.Writer, v any, show func(*printer)) error {
	if done, err := output.Document(w, o.format, "the result", v); done {
		return err
	}
	out := &printer{color: output.Colorful(w), width: output.TableWidth(w), summary: o.summary}
	show(out)
	_, err := w.Write(out.text.Bytes())
	return err
}

func (p *printer) line(format string, args ...any) {
	p.text.WriteString(output.VisibleLines(fmt.Sprintf(format, args...)))
	p.text.WriteByte('\n')
}

func (p *printer) head(color output.Color, text string) {
	p.text.WriteString(output.Paint(p.color, color, text))
	p.text.WriteByte('\n')
}

// table prints rows below their titles. least are the columns that a narrow terminal goes without, the least important first.
func (p *printer) table(rows [][]string, least ...string) {
	if len(rows) < 2 {
		return
	}
	p.text.WriteString(strings.Join(output.Columns(rows, p.width, least...), "\n") + "\n\n")
}

func (p *printer) diff(text string) {
	for line := range strings.Lines(text) {
		color := output.Color("")
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			color = output.Bold
		case strings.HasPrefix(line, "+"):
			color = output.Green
		case strings.HasPrefix(line, "-"):
			color = output.Red
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range cells {
			cells[i] = output.Visible(cells[i])
		}
		p.head(color, strings.Join(cells, "\t"))
	}
	if text != "" {
		p.text.WriteByte('\n')
	}
}

func (p *printer) problems(all []state.Problem) {
	for _, said := range output.Fold(problemTexts(all)) {
		text, fix, _ := strings.Cut(said, fixFollows)
		color := output.Yellow
		if strings.HasPrefix(text, fatalMark) {
			color = output.Red
		}
		p.head(color, strings.Join(p.wrap(text, 2), "\n  "))
		p.line("    %s", strings.Join(p.wrap(fix, 4), "\n    "))
	}
	if len(all) > 0 {
		p.text.WriteByte('\n')
	}
}

const (
	fatalMark = "✗"
	// fixFollows separates a problem from its fix. Texts that are made visible never contain it.
	fixFollows = "\n\x01"
)

// problemTexts returns each problem with its mark and its fix.
func problemTexts(all []state.Problem) []string {
	texts := make([]string, len(all))
	for i := range all {
		problem := &all[i]
		mark, fix := "!", sentence(problem.Fix)
		if problem.Fatal {
			mark = fatalMark
		}
		if problem.ByHand {
			fix = "Manual step: " + problem.Fix
		}
		texts[i] = mark + " " + output.VisibleLines(problem.WithCode()) + fixFollows + fix
	}
	return texts
}

// sentence begins a text with a capital, unless it begins with a command or a path.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

// wrap returns the lines of a text that is indented by a number of characters. Indented lines stay whole.
func (p *printer) wrap(text string, indent int) []string {
	var lines []string
	for line := range strings.SplitSeq(output.VisibleLines(text), "\n") {
		if p.width == 0 || strings.HasPrefix(line, " ") {
			lines = append(lines, line)
			continue
		}
		lines = append(lines, output.Wrap(line, p.width-indent)...)
	}
	return lines
}

// steps lists the commands that bootstrap runs, with their results, and those that the user has to run.
func (p *printer) steps(all []bootstrap.Step, toRun string) {
	for i := range all {
		s := &all[i]
		what := toRun
		switch {
		case !s.Runs:
			what = "manual step:"
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
