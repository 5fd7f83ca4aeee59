package terminal

import (
	"fmt"
	"io"
	"time"
)

// patience is the time after which a user wants to know what a program does.
const patience = time.Second

// Progress shows on a terminal what long work does now. It writes nothing to a pipe or file. The zero value writes
// nothing.
type Progress struct {
	w     io.Writer
	begun time.Time
}

// NewProgress returns a Progress that writes to w, usually standard error, after the first second.
func NewProgress(w io.Writer) *Progress {
	if !Is(w) {
		return &Progress{}
	}
	return &Progress{w: w, begun: time.Now()}
}

// Say replaces the last text. Remove a text that is no longer true with [Progress.End].
func (p *Progress) Say(format string, args ...any) {
	if p.w != nil && time.Since(p.begun) >= patience {
		fmt.Fprint(p.w, eraseLine+Shorten(Visible(fmt.Sprintf(format, args...)), PageWidth-1)+"…")
	}
}

// End removes the last text. Call it before you write a result or an error.
func (p *Progress) End() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}

// eraseLine returns to the start of the line and clears it (ECMA-48 EL).
const eraseLine = "\r\x1b[K"
