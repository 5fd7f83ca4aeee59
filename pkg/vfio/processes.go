package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Processes finds the processes that hold device nodes. It implements what package prepare needs, and is safe for
// concurrent use.
//
// A walk through /proc takes seconds on a node with many processes. So all calls of Find that come before a walk begins
// share that walk, however many claims they are for. A call that comes during a walk waits for the next walk, because
// its answer must never be older than the call.
type Processes struct {
	fs *sysfs.FS

	mu      sync.Mutex // guards all below
	walking bool
	next    *walk // for the calls that came since the present walk began; nil if there are none
}

// NewProcesses returns the processes of the node whose proc and dev fs has.
func NewProcesses(fs *sysfs.FS) *Processes { return &Processes{fs: fs} }

// A walk is one look through /proc on behalf of its callers.
type walk struct {
	ctx     context.Context // ends when all callers have left
	cancel  context.CancelFunc
	callers int      // guarded by Processes.mu
	nodes   []string // guarded by Processes.mu until the walk begins

	done    chan struct{} // closed when what is below is set
	holders []Holder
	err     error
}

// Find is [Holders] on the node, see [Processes].
func (p *Processes) Find(ctx context.Context, nodes []string) ([]Holder, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find holders: %w", err)
	}
	w := p.join(ctx, nodes)
	defer p.leave(w)
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("find holders: %w", ctx.Err())
	}
	return of(w.holders, nodes), w.err
}

// of returns the holders of these nodes.
func of(holders []Holder, nodes []string) []Holder {
	wanted := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
	}
	var list []Holder
	for _, h := range holders {
		if wanted[h.Node] {
			list = append(list, h)
		}
	}
	return list
}

// join enters a caller into the next walk, which begins at once if none is running.
func (p *Processes) join(ctx context.Context, nodes []string) *walk {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = &walk{done: make(chan struct{})}
		// The walk serves several callers, so it must not end with the first one's ctx. leave cancels it after the last one.
		p.next.ctx, p.next.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	w := p.next
	w.callers++
	w.nodes = append(w.nodes, nodes...)
	if !p.walking {
		p.walking = true
		go p.walk()
	}
	return w
}

// leave takes a caller out. A walk whose callers have all left ends early.
func (p *Processes) leave(w *walk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.callers--; w.callers == 0 {
		w.cancel()
		if p.next == w {
			p.next = nil
		}
	}
}

// walk makes one walk after the other while there are callers.
func (p *Processes) walk() {
	for w := p.begin(); w != nil; w = p.begin() {
		slices.Sort(w.nodes)
		w.holders, w.err = Holders(w.ctx, p.fs, slices.Compact(w.nodes))
		w.holders = slices.DeleteFunc(w.holders, isSelf)
		close(w.done)
	}
}

// isSelf reports whether a holder is this process, which has groups open while it resets their functions ([Exclude]).
func isSelf(h Holder) bool { return h.PID == os.Getpid() }

// begin returns the next walk, which takes no more callers; nil if none waits.
func (p *Processes) begin() *walk {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.next
	p.next = nil
	// walking is set under the lock, so that a caller that joins later finds either a walk that is to come, or none,
	// and then starts the loop again.
	p.walking = w != nil
	return w
}

// Claimed is [Claimed].
func (p *Processes) Claimed(ctx context.Context, f *device.Function) (node string, err error) {
	return Claimed(ctx, p.fs, f)
}

// Wait is [Wait].
func (p *Processes) Wait(ctx context.Context, holders []Holder) error {
	return Wait(ctx, p.fs, holders)
}

// Wait returns nil as soon as one of the processes has ended, or the cause of ctx if ctx ends first. It sleeps in the
// kernel (pidfd_open(2), poll(2)) until then. It does not notice a process that only closes the node.
//
// The holders' PIDs must be those of the caller's own PID namespace.
func Wait(ctx context.Context, fs *sysfs.FS, holders []Holder) error {
	processes, ended, err := open(fs, holders)
	defer closeAll(processes)
	if ended || err != nil {
		return err
	}
	if err := wait(ctx, processes); err != nil {
		return fmt.Errorf("wait for the holders to end: %w", err)
	}
	return nil
}

// open returns a descriptor for each process, or reports that one of them has ended.
func open(fs *sysfs.FS, holders []Holder) (processes []int, ended bool, err error) {
	for _, h := range holders {
		fd, err := unix.PidfdOpen(h.PID, 0)
		if errors.Is(err, unix.ESRCH) {
			return processes, true, nil
		}
		if err != nil {
			return processes, false, fmt.Errorf("open process %d: %w", h.PID, err)
		}
		processes = append(processes, fd)
		// The descriptor pins the process, so now check that it is still the same process.
		now, err := describe(fs, h.PID)
		if seen(err) != nil {
			return processes, false, err
		}
		if err != nil || now.StartTime != h.StartTime {
			return processes, true, nil
		}
	}
	return processes, false, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// wait sleeps until one of the processes ends or ctx does.
func wait(ctx context.Context, processes []int) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(wake) }()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		_, _ = unix.Write(wake, one) // can't fail on an eventfd that is open and empty
	})
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for _, fd := range processes {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	err = poll(fds)
	if !stop() {
		<-woken // it must not write to a descriptor that is another's by then
		return context.Cause(ctx)
	}
	return err
}

// poll sleeps until one of the descriptors is ready.
func poll(fds []unix.PollFd) error {
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
