package terminal

import (
	"fmt"
	"io"
	"time"
)

// patience is how long work runs before a user wants to know what it does.
const patience = time.Second

// Progress says on a terminal what long work does now. In a pipe or a file it is silent. The zero value is silent, too.
type Progress struct {
	w     io.Writer
	begun time.Time
}

// NewProgress returns one that writes to w, usually standard error, from the second second on.
func NewProgress(w io.Writer) *Progress {
	if !Is(w) {
		return &Progress{}
	}
	return &Progress{w: w, begun: time.Now()}
}

// Say replaces the last text. Text that is not true any more is removed by [Progress.End].
func (p *Progress) Say(format string, args ...any) {
	if p.w != nil && time.Since(p.begun) >= patience {
		fmt.Fprint(p.w, eraseLine+Shorten(Visible(fmt.Sprintf(format, args...)), PageWidth-1)+"…")
	}
}

// End removes the last text, before a result or an error is written.
func (p *Progress) End() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}

// eraseLine returns to the line's begin and clears it (ECMA-48 EL).
const eraseLine = "\r\x1b[K"
