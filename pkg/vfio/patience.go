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

// read reads a file of proc for which the kernel takes the lock of a process' memory map, or reads that memory. While an
// earlier read of the file hangs, nothing waits for the process again.
func (p *patience) read(ctx context.Context, fs *sysfs.FS, name string, limit int64) (string, error) {
	var text string
	err := p.wait(ctx, func(ctx context.Context) error {
		data, err := fs.ReadAside(ctx, name, limit)
		text = string(data)
		return err
	})
	if errors.Is(err, sysfs.ErrDelayed) {
		err = errSlow
	}
	return text, err
}

// wait runs a read that a process can delay for any time. The context of the read ends when patience does.
func (p *patience) wait(ctx context.Context, read func(context.Context) error) error {
	start := time.Now()
	defer func() { *p -= patience(max(0, time.Since(start)-atOnce)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, min(max(time.Duration(*p), 0), maxWait)+atOnce, errSlow)
	defer cancel()
	return read(ctx)
}
