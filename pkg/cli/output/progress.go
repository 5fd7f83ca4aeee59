package output

import (
	"fmt"
	"io"
)

// Progress shows the current step of long work on a terminal. In a pipe or a file, and as the zero value, it is silent.
type Progress struct {
	w     io.Writer
	lines bool
	said  string // the last line
}

// NewProgress returns one that writes to w, usually standard error.
func NewProgress(w io.Writer) *Progress {
	if !Is(w) {
		return &Progress{}
	}
	return &Progress{w: w}
}

// NewSteps returns one for work of several steps that are slow: in a pipe or a file, each step is a line.
func NewSteps(w io.Writer) *Progress { return &Progress{w: w, lines: !Is(w)} }

// Say replaces the last text.
func (p *Progress) Say(format string, args ...any) {
	text := Visible(fmt.Sprintf(format, args...))
	switch {
	case p.lines && text == p.said: // a log has each step once, however long it takes
	case p.lines:
		p.said = text
		fmt.Fprintln(p.w, text)
	case p.w != nil:
		fmt.Fprint(p.w, eraseLine+Shorten(text, PageWidth-1)+"…")
	}
}

// End removes the last text, before a result or an error is written.
func (p *Progress) End() {
	if p.w != nil && !p.lines {
		fmt.Fprint(p.w, eraseLine)
	}
}

// eraseLine returns to the start of the line and clears it (ECMA-48 EL).
const eraseLine = "\r\x1b[K"
