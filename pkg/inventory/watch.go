package inventory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// ErrOverrun says that the kernel dropped uevents because they were not read fast enough. It is then unknown what has changed.
var ErrOverrun = errors.New("the kernel dropped uevents")

// Events delivers the kernel's messages.
type Events interface {
	// Next waits for the next message. After an [ErrOverrun] there are more messages; after any other error there are none. It is called
	// from one goroutine.
	Next() (Uevent, error)
	// Close makes Next return.
	Close() error
}

// An update waits for the rest of a burst of events: until none has come for settle, but at most settleMost. The kernel makes
// a PF's VFs one after the other, and each scan of a burst leads to another write of the same slices.
const (
	settle     = 50 * time.Millisecond
	settleMost = time.Second
)

// After an update that failed, or found a function locked, the next update follows after retryFirst. The pause then doubles each time, up
// to retryLast.
const (
	retryFirst = time.Second
	retryLast  = time.Minute
)

// Watcher keeps a snapshot of the node up to date. One goroutine updates the snapshot when the kernel reports a change. The kernel does not
// report changes of addresses, routes and mounts: call [Watcher.Refresh] before you decide by [device.Function.Uses], and [Watcher.Look]
// from time to time.
//
// All methods may be called from several goroutines.
type Watcher struct {
	fs      *sysfs.FS
	opts    []Option
	events  Events
	changed *pending
	latest  atomic.Pointer[device.Snapshot]

	mu          sync.Mutex // guards subscribers
	subscribers map[chan *device.Snapshot]bool
}

// Watch scans the node and returns a Watcher with that snapshot, which [Watcher.Run] then keeps up to date. No change after the start of
// Watch is missed. It needs a live node.
func Watch(ctx context.Context, fs *sysfs.FS, opts ...Option) (*Watcher, error) {
	// The socket opens before the scan, so that a change during the scan is an event.
	events, err := listen()
	if err != nil {
		return nil, fmt.Errorf("listen for uevents: %w", err)
	}
	return WatchBy(ctx, fs, events, opts...)
}

// WatchBy is [Watch] with another source of messages. It takes ownership of events, even if it fails.
func WatchBy(ctx context.Context, fs *sysfs.FS, events Events, opts ...Option) (*Watcher, error) {
	// The events are open before the scan, so a change during it is not lost.
	ask, live, err := connection(fs)
	if live {
		opts = append(slices.Clone(opts), asking(ask))
	}
	var snap *device.Snapshot
	if err == nil {
		snap, err = Scan(ctx, fs, opts...)
	}
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	w := &Watcher{fs: fs, opts: opts, events: events, changed: newPending(), subscribers: map[chan *device.Snapshot]bool{}}
	w.latest.Store(snap)
	return w, nil
}

// Run updates the snapshot until ctx is over, and returns nil then, or until
// the kernel's messages can't be read any more. It is called once.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// Next has no context: closing the events wakes it.
	stop := context.AfterFunc(ctx, func() { _ = w.events.Close() })
	defer stop()
	g.Go(func() error { return w.receive(ctx) })
	g.Go(func() error {
		w.update(ctx)
		return nil
	})
	return g.Wait()
}

// Snapshot returns the latest snapshot. If later scans have failed, its Stale says why. The error is always nil; it exists for inventories
// that scan when asked.
func (w *Watcher) Snapshot(context.Context) (*device.Snapshot, error) {
	return w.latest.Load(), nil
}

// Refresh returns the latest snapshot with the functions at addrs and their groups read again ([Lightly]). It does not wait for an update
// in progress.
func (w *Watcher) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return w.refresh(ctx, addrs)
}

// RefreshFunctions is [Watcher.Refresh] that keeps the host's facts ([KeepHost]).
func (w *Watcher) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return w.refresh(ctx, addrs, KeepHost())
}

func (w *Watcher) refresh(ctx context.Context, addrs []pci.Address, opts ...Option) (*device.Snapshot, error) {
	before := w.latest.Load()
	now, err := Rescan(ctx, w.fs, before, addrs, slices.Concat(w.opts, []Option{Lightly()}, opts)...)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		old, _ := before.Function(a)
		// The update goroutine alone publishes snapshots. A second writer could publish an older
		// state over a newer one.
		if f, _ := now.Function(a); !reflect.DeepEqual(old, f) {
			w.changed.add(subject{subsystem: "pci", path: a.String()})
		}
	}
	return now, nil
}

// ReadHost makes the watcher read the facts of the host again soon. Call it after a change of a file that no event of the kernel reports.
func (w *Watcher) ReadHost() { w.changed.add(subject{subsystem: "host"}) }

// Subscribe returns a channel that has the current snapshot at once and then
// each new one; a slow subscriber gets the latest and misses those in between. cancel
// ends it.
func (w *Watcher) Subscribe() (snapshots <-chan *device.Snapshot, cancel func()) {
	ch := make(chan *device.Snapshot, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	// The channel has room for one snapshot, so this does not block under the lock.
	ch <- w.latest.Load()
	w.subscribers[ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subscribers, ch)
	}
}

// receive notes what the kernel says has changed.
func (w *Watcher) receive(ctx context.Context) error {
	for {
		ev, err := w.events.Next()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrOverrun):
			// The socket's buffer overflowed and messages are lost, so anything may have changed.
			w.changed.add()
		case err != nil:
			return fmt.Errorf("read uevents: %w", err)
		case relevant(ev):
			w.changed.add(subject{ev.Subsystem, ev.Path})
		}
	}
}

// update makes the updates until ctx is over.
func (w *Watcher) update(ctx context.Context) {
	retry := time.NewTimer(0)
	retry.Stop()
	wait := retryFirst
	if !w.complete(w.latest.Load()) {
		retry.Reset(wait)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed.wake:
		case <-retry.C:
		}
		if !w.settle(ctx) {
			return
		}
		if w.advance(ctx) {
			retry.Stop()
			wait = retryFirst
			continue
		}
		retry.Reset(wait)
		wait = min(2*wait, retryLast)
	}
}

// settle waits until a burst of events is over; false when ctx ends first.
func (w *Watcher) settle(ctx context.Context) bool {
	most := time.Now().Add(settleMost)
	for wait := settle; wait > 0; wait = min(settle-time.Since(w.changed.latest()), time.Until(most)) {
		if !pause(ctx, wait) {
			return false
		}
	}
	return true
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// advance makes one update; it returns false if another attempt is due. If the update fails, the snapshot stays and becomes stale, and the
// recorded changes are kept for the next attempt.
func (w *Watcher) advance(ctx context.Context) bool {
	all, subjects := w.changed.take()
	last := w.latest.Load()
	next, err := w.scan(ctx, all, newScope(subjects, last), last)
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		w.changed.put(all, subjects)
		stale := *last
		stale.Stale = err.Error()
		w.publish(&stale)
		return false
	}
	w.publish(next)
	return w.complete(next)
}

// complete reports whether every function was read in full. It keeps functions that an operation in the kernel held locked for the next
// attempt, because no uevent reports the end of the operation.
func (w *Watcher) complete(snap *device.Snapshot) bool {
	locked := map[subject]bool{}
	for i := range snap.Functions {
		if f := &snap.Functions[i]; f.Locked {
			locked[subject{subsystem: "pci", path: f.Address.String()}] = true
		}
	}
	w.changed.put(false, locked)
	return len(locked) == 0
}

// scan reads what is in scope.
func (w *Watcher) scan(ctx context.Context, all bool, s scope, last *device.Snapshot) (*device.Snapshot, error) {
	if all || s.all {
		return Scan(ctx, w.fs, w.opts...)
	}
	next, err := Rescan(ctx, w.fs, last, s.addrs, w.opts...)
	if err != nil {
		return nil, err
	}
	next.Stale = "" // the changes of the failed update were in scope again
	return next, nil
}

// publish makes snap the latest snapshot and hands it to the subscribers, unless it is equal to the last one.
func (w *Watcher) publish(snap *device.Snapshot) {
	if reflect.DeepEqual(snap, w.latest.Load()) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest.Store(snap)
	for ch := range w.subscribers {
		select { // only this function sends: once the old snapshot is taken out, there is room
		case <-ch:
		default:
		}
		ch <- snap
	}
}
