package vfio

import (
	"context"
	"errors"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// patience is what is left of the time to wait for processes that don't let their memory be read: a thread hangs in the
// kernel with the lock of the memory map, or the process' owner arranges for it.
type patience time.Duration

// How long a look waits for such processes: for one, and for all together. A node that is short of processor time is
// slow with each. When patience has ended, a read that takes no longer than atOnce still counts.
const (
	maxWait     = time.Second
	maxPatience = patience(10 * time.Second)
	atOnce      = 20 * time.Millisecond
)

// errSlow says that a process did not let its memory be read.
var errSlow = errors.New("the kernel does not let go of its memory map")

// read reads a file of proc for which the kernel takes the lock of a process' memory map, or reads that memory.
func (p *patience) read(ctx context.Context, fs *sysfs.FS, name string, limit int64) (string, error) {
	return p.aside(ctx, func() ([]byte, error) { return fs.ReadAtMost(name, limit) })
}

// aside runs a read that a process can delay for any time, and abandons it when patience ends.
func (p *patience) aside(ctx context.Context, read func() ([]byte, error)) (string, error) {
	type result struct {
		data []byte
		err  error
	}
	// With room for the result, so that an abandoned read can end although nobody receives it.
	done := make(chan result, 1)
	go func() {
		data, err := read()
		done <- result{data, err}
	}()
	start := time.Now()
	defer func() { *p -= patience(max(0, time.Since(start)-atOnce)) }()
	timer := time.NewTimer(min(max(time.Duration(*p), 0), maxWait) + atOnce)
	defer timer.Stop()
	select {
	case r := <-done:
		return string(r.data), r.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-timer.C:
		return "", errSlow
	}
}
