package ledger_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// TestEndOfASegmentIsThatOfAWholeCheck, whichever byte of it was changed, unless that is in a signature in between: the
// events are those that were signed all the same.
func TestEndOfASegmentIsThatOfAWholeCheck(t *testing.T) {
	h := newHistory(t)
	v, err := note.NewVerifier(strings.TrimSpace(h.files[ledger.PublicKeyFile]))
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for name, text := range h.files {
		if !ledger.IsSegment(name) {
			continue
		}
		sound := ledger.CheckSegment(name, []byte(text), v)
		for i := 0; i < len(text); i += 5 {
			data := []byte(text)
			data[i] ^= 1
			whole, end := ledger.CheckSegment(name, data, v), ledger.CheckEnd(name, data, v)
			if whole.Damage != nil && end.Damage == nil && end.Signed == sound.Signed && slices.EqualFunc(end.Events, sound.Events, slices.Equal) {
				left++
				continue
			}
			if diff := cmp.Diff(whole, end, cmp.AllowUnexported(ledger.Chain{})); diff != "" {
				t.Fatalf("%s, byte %d (-whole check +end):\n%s", name, i, diff)
			}
		}
	}
	if left == 0 {
		t.Error("no signature in between was left out")
	}
}

// countingFS counts the segments that are open at once. Each waits for others to be
// opened, as long as that may happen.
type countingFS struct {
	fs.FS
	mu         sync.Mutex // guards the counts
	open, most int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil || !ledger.IsSegment(name) {
		return f, err
	}
	c.mu.Lock()
	c.open++
	c.most = max(c.most, c.open)
	c.mu.Unlock()
	for range 100 {
		runtime.Gosched()
	}
	return &countedFile{File: f, c: c}, nil
}

type countedFile struct {
	fs.File
	c *countingFS
}

func (f *countedFile) Close() error {
	f.c.mu.Lock()
	f.c.open--
	f.c.mu.Unlock()
	return f.File.Close()
}

// TestOneFileAtATime: a reader with little memory reads one file after the other.
func TestOneFileAtATime(t *testing.T) {
	dir := &countingFS{FS: os.DirFS(newHistory(t).dir)}
	r, err := ledger.Verify(dir, ledger.Options{Parallel: 1})
	if err != nil || !r.OK() || r.Segments < 2 || dir.most != 1 {
		t.Errorf("Verify = %+v, %v; %d files at once", r, err, dir.most)
	}
}

// TestVerificationThatIsCutOffIsNoVerdict.
func TestVerificationThatIsCutOffIsNoVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := ledger.VerifyContext(ctx, os.DirFS(newHistory(t).dir), ledger.Options{}); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("VerifyContext = %+v, %v; want context.Canceled", r, err)
	}
}
