package vfio

import (
	"context"
	"errors"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// patience is the remaining time to wait for processes whose memory can't be read at once. A thread of such a process
// hangs in the kernel with the lock of the memory map, or the process' owner causes the delay on purpose.
type patience time.Duration

// These limit how long a look waits for such processes: maxWait for one, maxPatience for all together. A node that is
// short of processor time is slow with each process. When patience has run out, a read still counts if it takes no
// longer than atOnce.
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
	// The channel has room for the result, so that an abandoned read can end although nobody receives its result.
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
