package sysfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestDelayedReadsDoNotPileUp: while a read of a process' file hangs, the file is not read again, unless another process
// has the PID by then. When the read has ended, it is.
func TestDelayedReadsDoNotPileUp(t *testing.T) {
	root := t.TempDir()
	stat := filepath.Join(root, Process(4711, "stat"))
	begin := func(start string) {
		text := "4711 (vmm) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 " + start + " 1 1\n"
		if err := errors.Join(os.MkdirAll(filepath.Dir(stat), 0o755), os.WriteFile(stat, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	begin("100")
	fs, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	var reads atomic.Int32
	through := make(chan struct{})
	hang := func() ([]byte, error) { reads.Add(1); <-through; return nil, nil }
	answer := func() ([]byte, error) { return []byte("vmm"), nil }
	errSlow := errors.New("too slow")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errSlow)
	cmdline, maps := Process(4711, "cmdline"), Process(4711, "maps")
	if _, err := fs.aside(ended, cmdline, hang); !errors.Is(err, errSlow) {
		t.Errorf("a read that hangs: %v, want %v", err, errSlow)
	}
	for range 100 {
		if _, err := fs.aside(t.Context(), cmdline, hang); !errors.Is(err, ErrDelayed) {
			t.Fatalf("while it hangs: %v, want %v", err, ErrDelayed)
		}
	}
	if data, err := fs.aside(t.Context(), maps, answer); err != nil || string(data) != "vmm" {
		t.Errorf("another file: %q, %v", data, err)
	}
	begin("200")
	if data, err := fs.aside(t.Context(), cmdline, answer); err != nil || string(data) != "vmm" {
		t.Errorf("a later process with the PID: %q, %v", data, err)
	}
	begin("100")
	close(through)
	for fs.delayed.hang(cmdline, func() uint64 { return 100 }) { // until the test's own time limit
		runtime.Gosched()
	}
	if data, err := fs.aside(t.Context(), cmdline, answer); err != nil || string(data) != "vmm" || reads.Load() != 1 {
		t.Errorf("after it ended: %q, %v, and %d reads hung", data, err, reads.Load())
	}
}
