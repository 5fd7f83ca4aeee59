package image

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints what is being done and when, for the person who waits. Safe for concurrent use.
type progress struct {
	mu    sync.Mutex // one line at a time
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, start: time.Now()}
}

func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A reader who went away is no reason to stop a build.
	_, _ = fmt.Fprintf(p.out, "[%4.0fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
