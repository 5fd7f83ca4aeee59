package ledger_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

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

// TestOneFileAtATime: who has little memory reads one after the other.
func TestOneFileAtATime(t *testing.T) {
	dir := &countingFS{FS: os.DirFS(newHistory(t).dir)}
	r, err := ledger.Verify(dir, ledger.Options{Parallel: 1})
	if err != nil || !r.OK() || r.Segments < 2 || dir.most != 1 {
		t.Errorf("Verify = %+v, %v; %d files at once", r, err, dir.most)
	}
}

// TestAVerificationThatIsCutOffIsNoVerdict.
func TestAVerificationThatIsCutOffIsNoVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := ledger.VerifyContext(ctx, os.DirFS(newHistory(t).dir), ledger.Options{}); !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("VerifyContext = %+v, %v; want context.Canceled", r, err)
	}
}
