// Package tail keeps the end of an output: what an error quotes of it.
package tail

import (
	"bytes"
	"os"
	"sync"
)

// limit is how much is kept, in bytes: some thirty lines.
const limit = 3000

// Writer keeps the end of what is written to it. Its zero value is ready, and it is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	text []byte // the last of the output, at most two tails
}

// Write takes whole lines or parts of them. It never fails.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text...)
	if extra := len(w.text) - 2*limit; extra > 0 {
		w.text = append(w.text[:0], w.text[extra:]...)
	}
	return len(text), nil
}

// String is the end, without the space around it.
func (w *Writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return of(w.text)
}

// File is the end of a file, or why there is none.
func File(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return of(text)
}

func of(text []byte) string {
	return string(bytes.TrimSpace(text[max(0, len(text)-limit):]))
}
