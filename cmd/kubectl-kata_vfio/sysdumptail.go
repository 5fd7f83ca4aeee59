package main

import (
	"bytes"
	"fmt"
	"io"
)

// tail is a writer that keeps the last bytes of what is written to it.
type tail struct {
	kept []byte
	// most is how many bytes it keeps, and cut says that it dropped some.
	most int
	cut  bool
}

// Write never fails.
func (t *tail) Write(text []byte) (int, error) {
	t.kept = append(t.kept, text...)
	if len(t.kept) > 2*t.most { // not at each write, because it moves all that is kept
		t.drop()
	}
	return len(text), nil
}

func (t *tail) drop() {
	if n := len(t.kept) - t.most; n > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[n:]...), true
	}
}

// lines returns what was kept. If something was dropped, they begin with a whole line, unless there is only a part of one.
func (t *tail) lines() []byte {
	t.drop()
	if _, rest, _ := bytes.Cut(t.kept, []byte("\n")); t.cut && len(rest) > 0 {
		return rest
	}
	return t.kept
}

// readTail reads a log to its end, and returns its last lines, of most bytes at most. It is an error if the log has more bytes than limit:
// those that were read last are not its end.
func readTail(log io.Reader, most int, limit int64) ([]byte, error) {
	t := tail{most: most}
	n, err := io.Copy(&t, io.LimitReader(log, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("it is longer than %d MiB; a shorter --since leaves out old lines", limit>>20)
	}
	return t.lines(), err
}
