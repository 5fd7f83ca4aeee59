package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Append writes events together and in order, and returns the signed checkpoint after them when all is on disk. It
// completes copies, and leaves the caller's events unchanged. Concurrent calls share a write. After an error the ledger
// has none of the events, and the next call tries again. The error is an [Error].
func (w *Writer) Append(ctx context.Context, events ...ledger.Event) (signed string, err error) {
	r := &request{events: events}
	err = w.do(ctx, r)
	return r.signed, err
}

// AppendSoon is [Writer.Append] without the wait for the disk. All readers see the events, and a crash of the process
// leaves them. They survive a power failure once an Append or a Sync that begins later has returned.
func (w *Writer) AppendSoon(ctx context.Context, events ...ledger.Event) error {
	return w.do(ctx, &request{events: events, soon: true})
}

// Sync waits until the events of all earlier AppendSoon calls are on disk. It costs nothing if they are on disk already.
func (w *Writer) Sync(ctx context.Context) error { return w.do(ctx, &request{}) }

// Ready returns the reason why an event can't be written now, as an [Error], or nil. Without writing an event, it finds these
// reasons: the end of the ledger is damaged, its directory can't be written, or another process keeps its lock. Ready opens the
// ledger, and creates it if it is missing.
func (w *Writer) Ready(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return &Error{Dir: w.config.Dir, Err: context.Cause(ctx)}
	}
	defer func() { <-w.turn }()
	release, err := w.begun(ctx)
	if err == nil {
		release()
		err = unix.Access(w.config.Dir, unix.W_OK|unix.X_OK) // the open files don't show a disk that became read-only
	}
	if err != nil {
		return &Error{Dir: w.config.Dir, Err: fmt.Errorf("append: %w", err)}
	}
	return nil
}

// do carries out a request, in this goroutine or in one that writes for several.
func (w *Writer) do(ctx context.Context, r *request) error {
	w.mu.Lock()
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		if w.withdraw(r) {
			return &Error{Dir: w.config.Dir, Err: context.Cause(ctx)}
		}
		w.turn <- struct{}{} // another goroutine is writing this request; wait for it
	}
	defer func() { <-w.turn }()
	if !r.done {
		w.writeAll(context.WithoutCancel(ctx))
	}
	return r.err
}

// withdraw takes back a request that is not being written yet.
func (w *Writer) withdraw(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range w.queue {
		if q == r {
			w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
			return true
		}
	}
	return false
}

// writeAll writes the queued events. The turn is held.
func (w *Writer) writeAll(ctx context.Context) {
	w.mu.Lock()
	batch := w.queue
	w.queue = nil
	w.mu.Unlock()
	// All callers that queued since the last write share one write, one signature and one sync.
	var events []ledger.Event
	durable := false
	for _, r := range batch {
		events = append(events, r.events...)
		durable = durable || !r.soon
	}
	start := time.Now()
	err := w.write(ctx, events, durable)
	signed := w.at.signed
	if err != nil {
		err, signed = &Error{Dir: w.config.Dir, Err: fmt.Errorf("append: %w", err)}, ""
		w.observe(events, 0, time.Since(start), err)
	}
	for _, r := range batch {
		r.err, r.done = err, true
		if !r.soon {
			r.signed = signed
		}
	}
}

func (w *Writer) observe(events []ledger.Event, size int64, took time.Duration, err error) {
	o := Write{Size: w.at.chain.Size, Bytes: size, Took: took, Err: err}
	for i := range events {
		o.Types = append(o.Types, events[i].Type)
	}
	if w.config.Metrics != nil {
		w.config.Metrics.ObserveLedger(o)
	}
}

// write appends events as one write. If durable is set, these and all earlier events are on disk when it returns.
func (w *Writer) write(ctx context.Context, events []ledger.Event, durable bool) error {
	if len(events) == 0 && (!w.pending || w.isInPlace()) {
		return w.flush()
	}
	release, err := w.begun(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := w.rotate(); err != nil {
		return err
	}
	if len(events) == 0 {
		return w.flush()
	}
	return w.extend(events, durable)
}

// commit appends events at the position durably. The lock is held.
func (w *Writer) commit(events []ledger.Event) error { return w.extend(events, true) }

// extend appends events at the position. The lock is held.
func (w *Writer) extend(events []ledger.Event, durable bool) error {
	start, next := time.Now(), w.at
	var data bytes.Buffer
	for i := range events {
		e := events[i]
		e.More = i < len(events)-1
		next.tick = w.lookAtClocks()
		line, err := w.complete(e, next)
		if err != nil {
			return err
		}
		data.Write(line)
		data.WriteByte('\n')
		next.chain = next.chain.Extend(tlog.RecordHash(line))
	}
	var err error
	if next.signed, err = next.chain.Checkpoint(w.signer.Name()).Sign(w.signer); err != nil {
		return err
	}
	mark, err := ledger.MarkLine(next.signed)
	if err != nil {
		return err
	}
	data.Write(mark)
	next.offset += int64(data.Len())
	// The position moves only after a successful write. After a failed write, the next call reads the file to find its end.
	if err := w.put(data.Bytes(), durable); err != nil {
		return err
	}
	w.move(next, durable)
	w.observe(events, int64(data.Len()), time.Since(start), nil)
	return nil
}

// complete fills in what all events have and returns the line.
func (w *Writer) complete(e ledger.Event, at position) ([]byte, error) {
	e.Version, e.Seq, e.Prev = ledger.Version, at.chain.Size, at.chain.Last
	e.Time, e.BootTime, e.BootID, e.Elapsed = at.tick.time, at.tick.boot, at.tick.bootID, at.tick.elapsed
	e.Node, e.Machine = w.config.Node, w.config.Machine
	if e.Actor == (ledger.Actor{}) {
		e.Actor = w.config.Actor
	}
	if w.names != nil {
		w.names.Hide(&e)
	}
	return e.Encode()
}

// put appends the data to the segment. When it fails, the segment is cut back to what it was.
func (w *Writer) put(data []byte, durable bool) error {
	f, err := w.segment.open(w.path(w.at.file))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && durable {
		err = f.Sync()
	}
	if err != nil {
		// If truncating fails, too, the next write finds the rest as a torn write and moves it to a file.
		err = errors.Join(err, f.Truncate(w.at.offset), f.Sync(), w.segment.close())
		w.at.known = false
	}
	return err
}

// isInPlace reports whether the last write of this process is in the open segment. If so, it can be flushed without the lock,
// because other processes flush their own writes.
func (w *Writer) isInPlace() bool { return w.at.known && w.segment.isIn(w.path(w.at.file)) }

// flush syncs the newest segment, so that everything that was written is on disk. After an error, the position is unknown.
func (w *Writer) flush() error {
	if !w.pending {
		return nil
	}
	f, err := w.segment.open(w.path(w.at.file))
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		// After a failed fsync, the kernel may mark the lost pages as clean, and a second fsync would succeed. So the next call reads the
		// file again.
		w.at.known = false
		return errors.Join(err, w.segment.close())
	}
	w.move(w.at, true)
	return nil
}

// A torn write is moved to a separate file and cut off the segment. Then an event records it, and the file gets its
// final name. A crash in between repeats the event instead of losing it.
const (
	tornSuffix = ".torn"
	keptSuffix = ".kept"
)

// putAside moves a torn write from its segment to a separate file.
func (w *Writer) putAside(s *ledger.Segment) error {
	name, err := w.tornName(s)
	if err != nil {
		return fmt.Errorf("put a torn write aside: %w", err)
	}
	// The copy comes before the truncation: after a crash in between, the bytes are in both files, and this is repeated.
	if err := w.replace(name, s.Torn, 0o600); err != nil {
		return fmt.Errorf("put a torn write aside: %w", err)
	}
	f, err := os.OpenFile(w.path(s.Name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(s.Good); err != nil {
		return err
	}
	return f.Sync()
}

// tornName returns the name of a file for a torn write: one that does not exist, or that has the same bytes already. A crash during the
// write that records an earlier torn write leaves another torn write at the same place.
func (w *Writer) tornName(s *ledger.Segment) (string, error) {
	place := fmt.Sprintf("%s-%d", strings.TrimSuffix(s.Name, filepath.Ext(s.Name)), s.Good)
	name := place
	for n := 1; ; n++ {
		had, err := os.ReadFile(w.path(name + tornSuffix))
		_, keptErr := os.Lstat(w.path(name + keptSuffix))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		case errors.Is(keptErr, fs.ErrNotExist) && (err != nil || bytes.Equal(had, s.Torn)):
			return name + tornSuffix, nil
		}
		name = fmt.Sprintf("%s-%d", place, n)
	}
}

// recordTorn writes the events of torn writes that are not recorded yet.
func (w *Writer) recordTorn() error {
	names, err := filepath.Glob(w.path("*" + tornSuffix))
	if err != nil {
		return err
	}
	for _, path := range names {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		kept := strings.TrimSuffix(path, tornSuffix) + keptSuffix
		e := ledger.Event{Type: ledger.Torn, Result: ledger.OK, Reason: fmt.Sprintf(
			"a write of %d bytes was cut off here by a power failure, a kill or a full disk; the partial write is in %s", info.Size(), filepath.Base(kept))}
		// Event first, then the name: after a crash in between the event is written twice, never left out.
		if err := w.commit([]ledger.Event{e}); err != nil {
			return err
		}
		if err := os.Rename(path, kept); err != nil {
			return err
		}
	}
	return nil
}
