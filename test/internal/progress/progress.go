// Package progress prints what is being done and when, for a person who waits.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress prints lines with the time since its start. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex // one line at a time
	out   io.Writer
	start time.Time
}

// New starts now and prints to out.
func New(out io.Writer) *Progress {
	return &Progress{out: out, start: time.Now()}
}

// Step prints a line.
func (p *Progress) Step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A reader who went away is not a reason to stop.
	_, _ = fmt.Fprintf(p.out, "[%4.0fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Every prints a line periodically until stop is called. Once stop has returned, no line follows.
func (p *Progress) Every(pause time.Duration, line func() string) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				p.Step("%s", line())
			}
		}
	})
	return func() { close(done); wg.Wait() }
}
