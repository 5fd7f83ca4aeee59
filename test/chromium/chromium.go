// Package chromium drives a headless Chromium for tests of what people open in a browser. It talks the DevTools protocol
// over a pipe, so that nothing listens anywhere.
package chromium

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// Browser is a running Chromium.
type Browser struct {
	tb  testing.TB
	in  *os.File
	out *os.File

	mu      sync.Mutex // guards what is below, and writes
	last    int
	waiting map[int]chan message
	events  []message
	changed *sync.Cond
	gone    bool
}

// message is a call's answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

var errGone = errors.New("the browser is gone")

// Start starts Chromium, which ends with the test. Where the host has none, it is installed; where that fails, so does
// the test.
func Start(tb testing.TB) *Browser {
	tb.Helper()
	path := find(tb)
	// Chromium reads on its descriptor 3 and writes on 4.
	theirIn, in := pipe(tb)
	out, theirOut := pipe(tb)
	args := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + tb.TempDir(), "--no-first-run", "--disable-gpu",
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-dev-shm-usage",
		"--disable-sync", "--disable-extensions", "--hide-scrollbars",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // it refuses to run as root with one
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		cancel()
		tb.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &Browser{tb: tb, in: in, out: out, waiting: map[int]chan message{}}
	b.changed = sync.NewCond(&b.mu)
	done := make(chan struct{})
	go func() { defer close(done); b.read() }()
	tb.Cleanup(func() {
		_ = b.call("", "Browser.close", nil, nil)
		<-done
		_ = cmd.Wait()
		cancel()
		_, _ = in.Close(), out.Close()
		if tb.Failed() {
			tb.Logf("Chromium said:\n%s", &said)
		}
	})
	return b
}

// find returns Chromium's path, and installs it first where it must.
func find(tb testing.TB) string {
	tb.Helper()
	for range 2 {
		for _, name := range []string{"chromium", "chromium-browser"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
		if err := apt.Install(tb.Context(), tb.Output(), "chromium"); err != nil {
			tb.Fatalf("install Chromium: %v", err)
		}
	}
	tb.Fatal("Chromium is installed, and not found")
	return ""
}

func pipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	return r, w
}

// read hands out what Chromium writes, until it ends: texts of JSON with zero bytes between them.
func (b *Browser) read() {
	for from := bufio.NewReader(b.out); ; {
		text, err := from.ReadBytes(0)
		var m message
		if err != nil || json.Unmarshal(text[:len(text)-1], &m) != nil {
			break
		}
		b.mu.Lock()
		if waits := b.waiting[m.ID]; m.ID != 0 && waits != nil {
			delete(b.waiting, m.ID)
			waits <- m
		} else {
			b.events = append(b.events, m)
			b.changed.Broadcast()
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	for _, waits := range b.waiting {
		close(waits)
	}
	clear(b.waiting)
	b.changed.Broadcast()
}

// call asks Chromium for something and decodes its answer into result, if that is not nil.
func (b *Browser) call(session, method string, params, result any) error {
	answer, err := b.send(session, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	m, ok := <-answer
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", method, errGone)
	case m.Error != nil:
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	case result == nil:
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

func (b *Browser) send(session, method string, params any) (chan message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errGone
	}
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "sessionId": session, "method": method, "params": params})
	if session == "" {
		text, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	b.waiting[b.last] = answer
	_, err = b.in.Write(append(text, 0))
	return answer, err
}
