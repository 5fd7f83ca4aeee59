package sysfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// ErrDelayed is the error for a file of a process that an earlier read still waits for.
var ErrDelayed = errors.New("an earlier read of it still waits for the process")

// delayedReads counts the abandoned reads of processes' files that hang. Such a read can't be canceled, and blocks a
// thread until the kernel answers, of which the Go runtime allows ten thousand. So a file is not read again while a read
// of it hangs.
type delayedReads struct {
	mu      sync.Mutex // guards hanging
	hanging map[string]map[uint64]int
}

func newDelayedReads() *delayedReads { return &delayedReads{hanging: map[string]map[uint64]int{}} }

// add counts n more hanging reads of a file of the process that started at a time.
func (d *delayedReads) add(path string, start uint64, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hanging[path] == nil {
		d.hanging[path] = map[uint64]int{}
	}
	if d.hanging[path][start] += n; d.hanging[path][start] == 0 {
		delete(d.hanging[path], start)
	}
	if len(d.hanging[path]) == 0 {
		delete(d.hanging, path)
	}
}

// hang reports whether a read of the file hangs. Start returns the start time of the process that has the PID now: a
// process may have ended although a read of its file hangs.
func (d *delayedReads) hang(path string, start func() uint64) bool {
	d.mu.Lock()
	some := len(d.hanging[path]) > 0
	d.mu.Unlock()
	if !some {
		return false
	}
	now := start()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hanging[path][now] > 0
}

// ReadAside is [FS.ReadAtMost] of a file in the directory of a process, for a read that the process can delay for any
// time: the kernel takes the lock of its memory map, or reads its memory. ReadAside abandons the read when ctx ends, and
// returns the cause. Until the abandoned read ends, it returns [ErrDelayed] at once for the file.
func (f *FS) ReadAside(ctx context.Context, path string, n int64) ([]byte, error) {
	return f.aside(ctx, path, func() ([]byte, error) { return f.ReadAtMost(path, n) })
}

func (f *FS) aside(ctx context.Context, path string, read func() ([]byte, error)) ([]byte, error) {
	startTime := func() uint64 { return f.startTime(path) }
	if f.delayed.hang(path, startTime) {
		return nil, fmt.Errorf("read %s: %w", path, ErrDelayed)
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := read()
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
	}
	start := startTime()
	f.delayed.add(path, start, 1)
	go func() {
		<-done
		f.delayed.add(path, start, -1)
	}()
	return nil, context.Cause(ctx)
}

// startTime returns when the process started that has a file; 0 if that is unknown.
func (f *FS) startTime(path string) uint64 {
	below := strings.TrimPrefix(path, Proc+"/")
	pid, _, _ := strings.Cut(below, "/")
	stat, err := f.ReadString(Proc + "/" + pid + "/stat")
	if err != nil {
		return 0
	}
	start, err := ParseStartTime(stat)
	if err != nil {
		return 0
	}
	return start
}
