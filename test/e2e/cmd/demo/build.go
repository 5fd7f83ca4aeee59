package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

// build makes the commands of a cluster while something else is on the screen.
type build struct {
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed

	mu   sync.Mutex
	held bytes.Buffer // progress that nobody has seen
	out  io.Writer    // where further progress goes; nil while it is held
}

// startBuild starts to build what the cache lacks.
func startBuild(ctx context.Context) *build {
	b := &build{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		_, b.err = binaries.Ensure(ctx, binaries.Config{Modules: binaries.OfNode(), Progress: b, Nice: true})
	}()
	return b
}

// Write takes progress.
func (b *build) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out == nil {
		return b.held.Write(p)
	}
	return b.out.Write(p)
}

// wait shows the latest progress and all that follows, and returns how the build ended.
func (b *build) wait(out io.Writer) error {
	b.mu.Lock()
	lines := bytes.Split(bytes.TrimSpace(b.held.Bytes()), []byte("\n"))
	if last := lines[len(lines)-1]; len(last) > 0 {
		_, _ = fmt.Fprintf(out, "\nBuilt meanwhile, for the part with a cluster:\n%s\n", last) // see story.say
	}
	b.out = out
	b.mu.Unlock()
	<-b.done
	return b.err
}

// abandon waits for the end of a build that nobody needs any more. It is not an error that the build was canceled.
func (b *build) abandon() error {
	<-b.done
	if errors.Is(b.err, context.Canceled) {
		return nil
	}
	return b.err
}
