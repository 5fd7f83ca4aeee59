package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

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
