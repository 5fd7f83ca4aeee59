package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// manual is a program's page of the manual, with all its commands in it, made of the help: what a person reads is what
// the program itself says.
func manual(p *program, said help, src source) page {
	number := 8
	if p.isKubectlPlugin() {
		number = 1
	}
	var w roff
	w.line(".TH %s %d %s %s %s", quote(strings.ToUpper(p.name)), number, quote(src.time.UTC().Format("2006-01-02")),
		quote("kata-vfio "+src.version), quote("kata-vfio"))
	w.line(".SH NAME")
	w.line(`%s \- %s`, escape(p.name), escape(strings.TrimPrefix(said.short, p.name+" ")))
	w.line(".SH SYNOPSIS")
	w.usage(said.usage)
	w.line(".SH DESCRIPTION")
	w.text(said.text)
	w.examples(".SH EXAMPLES", said.examples)
	w.line(".SH OPTIONS")
	w.flags(said.flags)
	if len(said.commands) > 0 {
		w.line(".SH COMMANDS")
		w.commands(said.commands)
	}
	w.line(".SH SEE ALSO")
	w.line(`https://github.com/kata\-vfio/kata\-vfio`)
	return page{program: p.name, section: number, content: w.Bytes()}
}

// roff writes in the language of manual pages.
type roff struct{ bytes.Buffer }

func (w *roff) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// commands writes a section for each, the deeper ones behind their parents. Flags that all have are the program's.
func (w *roff) commands(commands []help) {
	for i := range commands {
		c := &commands[i]
		w.line(".SS %s", quote(strings.Join(c.words, " ")))
		w.usage(c.usage)
		if c.text != c.short {
			w.line(".PP")
			w.line("%s.", escape(c.short))
		}
		w.line(".PP")
		w.text(c.text)
		w.flags(c.flags)
		w.examples(".PP\nExamples:", c.examples)
		w.commands(c.commands)
	}
}

func (w *roff) usage(lines []string) {
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		w.line(`.br`)
		w.line(`\fB%s\fR %s`, escape(name), escape(rest))
	}
}

// text writes paragraphs. Lines that are indented stay lines.
func (w *roff) text(text string) {
	verbatim := false
	for line := range strings.SplitSeq(text, "\n") {
		if indented := strings.HasPrefix(line, " "); line != "" && indented != verbatim {
			w.line(map[bool]string{true: ".RS 2\n.nf", false: ".fi\n.RE"}[indented])
			verbatim = indented
		}
		switch {
		case line == "" && !verbatim:
			w.line(".PP")
		case verbatim:
			w.line("%s", escape(strings.TrimPrefix(line, "  ")))
		default:
			w.line("%s", escape(line))
		}
	}
	if verbatim {
		w.line(".fi\n.RE")
	}
}

func (w *roff) examples(title, text string) {
	if text == "" {
		return
	}
	w.line("%s", title)
	w.line(".RS 2\n.nf")
	for line := range strings.SplitSeq(text, "\n") {
		w.line("%s", escape(strings.TrimPrefix(line, "  ")))
	}
	w.line(".fi\n.RE")
}

// option matches a flag's first line: its names and the word for its value, and what it does, in the second column.
var option = regexp.MustCompile(`^ {2,6}(-\S.*?) {3,}(\S.*)$`)

func (w *roff) flags(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "  -h, --help ") {
			continue
		}
		if m := option.FindStringSubmatch(line); m != nil {
			w.line(".TP")
			w.line(`\fB%s\fR`, escape(m[1]))
			w.line("%s", escape(m[2]))
		} else if line != "" {
			w.line("%s", escape(strings.TrimSpace(line)))
		}
	}
}

// escape keeps text from being taken for roff: backslashes, hyphens that would become dashes, and a dot or quote at a
// line's beginning.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func quote(text string) string {
	return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"`
}
