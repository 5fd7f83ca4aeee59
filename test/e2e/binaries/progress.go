package binaries

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// progressPause is how often somebody who waits for minutes hears something.
	progressPause = 15 * time.Second
	// tailBytes is how much of a command's output an error quotes.
	tailBytes = 2000
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

// every prints a line again and again until stop is called, which returns when no more comes.
func (p *progress) every(pause time.Duration, line func() string) (stop func()) {
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
				p.step("%s", line())
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// counter counts the packages in the output of go build -v, and keeps the output's end. Its zero value is ready, and
// it is safe for concurrent use.
type counter struct {
	mu    sync.Mutex
	count int
	text  []byte // the last of the output, at most two tails
}

// Write takes whole lines or parts of them.
func (c *counter) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count += bytes.Count(text, []byte("\n"))
	c.text = append(c.text, text...)
	if extra := len(c.text) - 2*tailBytes; extra > 0 {
		c.text = append(c.text[:0], c.text[extra:]...)
	}
	return len(text), nil
}

func (c *counter) packages() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *counter) tail() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.TrimSpace(c.text[max(0, len(c.text)-tailBytes):])
}
