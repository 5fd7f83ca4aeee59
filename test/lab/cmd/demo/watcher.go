package main

import (
	"bytes"
	"io"
	"sync"
)

// watcher passes output on and notes when a text has gone by.
type watcher struct {
	to   io.Writer
	text []byte
	seen chan struct{} // closed when it has

	mu   sync.Mutex // guards both below, and the order of output
	tail []byte
	once sync.Once
}

func newWatcher(to io.Writer, text string) *watcher {
	return &watcher{to: to, text: []byte(text), seen: make(chan struct{})}
}

// Write implements [io.Writer].
func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, p...)
	if bytes.Contains(w.tail, w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	if keep := len(w.text); len(w.tail) > keep {
		w.tail = w.tail[len(w.tail)-keep:]
	}
	return w.to.Write(p)
}
