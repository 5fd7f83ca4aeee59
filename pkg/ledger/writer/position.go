package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// position is the end of the ledger as this process knows it.
type position struct {
	file   string
	offset int64
	chain  ledger.Chain
	signed string
	// tick is the moment of the last event.
	tick tick
	// known is false before the first look, and after a failure that leaves the
	// file in doubt.
	known bool
}

// move sets a new position. [Writer.Checkpoint] gets the checkpoint only if it is durable: after a power failure, an anchor that is
// kept off the node must not be ahead of the ledger.
func (w *Writer) move(to position, durable bool) {
	to.known = true
	w.at, w.pending = to, !durable
	if durable {
		w.last.Store(&to.signed)
	}
}

// catchUp moves the position to the end of the ledger, if another process has written to it, or this process failed to.
// It moves a torn write to a separate file. The lock is held.
func (w *Writer) catchUp(ctx context.Context) error {
	if w.isCurrent() {
		return nil
	}
	if err := w.segment.close(); err != nil { // another file may have the name now
		return err
	}
	newest, err := w.newest()
	if err != nil {
		return err
	}
	if newest == "" {
		if w.at.chain.Size > 0 {
			return &ledger.DamagedError{File: w.at.file, Seq: w.at.chain.Size, What: "all segments are missing"}
		}
		return w.begin(ledger.Chain{})
	}
	info, err := os.Stat(w.path(newest))
	if err != nil {
		return err
	}
	if w.at.known && newest == w.at.file && info.Size() == w.at.offset {
		return nil
	}
	return w.reload(ctx, newest)
}

// isCurrent reports whether no other process has written since this one did. Two checks show that without listing the directory:
// the open segment still has its name and its size, and the next segment does not exist. The name of the next segment would be the
// size of the ledger, which this process knows. The lock is held.
func (w *Writer) isCurrent() bool {
	if !w.at.known || !w.segment.isAt(w.path(w.at.file), w.at.offset) {
		return false
	}
	next := ledger.SegmentName(w.at.chain.Size)
	if next == w.at.file {
		return true
	}
	_, err := os.Lstat(w.path(next))
	return errors.Is(err, fs.ErrNotExist)
}

// reload reads the newest segment.
func (w *Writer) reload(ctx context.Context, name string) error {
	info, err := os.Stat(w.path(name))
	if err != nil {
		return fmt.Errorf("read the newest segment: %w", err)
	}
	if info.Size() > ledger.MaxSegment {
		return fmt.Errorf("%s has %d bytes, and a segment that was written here has at most %d", name, info.Size(), ledger.MaxSegment)
	}
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		return err
	}
	s := ledger.CheckEnd(name, data, w.verifier)
	if s.Damage != nil {
		return s.Damage
	}
	if err := w.continues(s); err != nil {
		return err
	}
	if len(s.Torn) > 0 {
		if err := w.putAside(s); err != nil {
			return err
		}
	}
	last, err := w.lastTick(ctx, s)
	if err != nil {
		return err
	}
	w.move(position{file: name, offset: s.Good, chain: s.End, signed: s.Signed, tick: last}, false) // another process may not have synced it
	if err := w.flush(); err != nil {
		return err
	}
	return w.recordTorn()
}

// lastTick returns the moment of the last event up to the end of the newest segment, which may have none itself.
func (w *Writer) lastTick(ctx context.Context, newest *ledger.Segment) (tick, error) {
	if n := len(newest.Events); n > 0 {
		e, err := ledger.DecodeEvent(newest.Events[n-1])
		if err != nil {
			return tick{}, nil //nolint:nilerr // of a newer version; events are kept longer
		}
		return moment(e), nil
	}
	var last tick
	err := w.backwards(ctx, func(_ string, data []byte) bool {
		e := lastEvent(data)
		if e != nil {
			last = moment(e)
		}
		return e != nil
	})
	return last, err
}

// continues checks that a segment continues the ledger that this process knows: a ledger never gets shorter, and written
// events never change.
func (w *Writer) continues(s *ledger.Segment) error {
	known := w.at.chain
	// Nothing is known yet, or the segment began after this process's last look: other processes write, too.
	if known.Size == 0 || s.Before.Size > known.Size {
		return nil
	}
	chain := s.Before
	for _, line := range s.Events {
		if chain.Size == known.Size {
			break
		}
		chain = chain.Extend(tlog.RecordHash(line))
	}
	if chain.Size != known.Size || chain.Root() != known.Root() {
		return &ledger.DamagedError{File: s.Name, Seq: chain.Size, What: fmt.Sprintf("the file was rewritten or cut off: its size was %d", known.Size)}
	}
	return nil
}

// newest returns the name of the last segment, empty without a segment.
func (w *Writer) newest() (string, error) {
	names, err := w.segments()
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[len(names)-1], nil
}

// segments returns the names of all segments, in order.
func (w *Writer) segments() ([]string, error) {
	entries, err := os.ReadDir(w.config.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ledger.IsSegment(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// begin creates the segment that continues a chain, completely or not at all.
func (w *Writer) begin(c ledger.Chain) error {
	head, signed, err := ledger.HeaderLine(c, w.signer)
	if err != nil {
		return err
	}
	name := ledger.SegmentName(c.Size)
	if err := w.replace(name, head, 0o600); err != nil {
		return err
	}
	w.move(position{file: name, offset: int64(len(head)), chain: c, signed: signed, tick: w.at.tick}, true)
	return nil
}

// replace writes a file durably, whole or not at all.
func (w *Writer) replace(name string, data []byte, mode fs.FileMode) error {
	if err := renameio.WriteFile(w.path(name), data, mode, renameio.WithTempDir(w.config.Dir), renameio.IgnoreUmask()); err != nil {
		return err
	}
	return w.syncDir()
}

// rotate begins the next segment if the current one is full.
func (w *Writer) rotate() error {
	if w.at.offset < w.config.SegmentBytes || w.at.file == ledger.SegmentName(w.at.chain.Size) {
		return nil
	}
	// The header of the next segment is durable at once, and continues the events of this segment. So these must be on disk first.
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.begin(w.at.chain); err != nil {
		return fmt.Errorf("begin a segment: %w", err)
	}
	return w.maintain()
}

// history returns the names of the files with events, in order: segments, and the files with the kept events of dropped segments.
func (w *Writer) history() ([]string, error) {
	entries, err := os.ReadDir(w.config.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries { // sorted by name: a segment comes right before its kept events
		name := e.Name()
		switch last := len(names) - 1; {
		case ledger.IsKept(name) && last >= 0 && ledger.FirstSeq(names[last]) == ledger.FirstSeq(name):
			// A crash came before the segment was removed. The segment takes precedence.
		case ledger.IsSegment(name), ledger.IsKept(name):
			names = append(names, name)
		}
	}
	return names, nil
}

// backwards calls look with the data of each file with events, from the newest to the oldest, until look returns true. The data is
// valid during the call only. If the directory does not exist, look is not called.
func (w *Writer) backwards(ctx context.Context, look func(name string, data []byte) (done bool)) error {
	names, err := w.history()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{Dir: w.config.Dir, Err: err}
	}
	var buffer []byte
	for _, name := range slices.Backward(names) {
		if ctx.Err() != nil {
			return &Error{Dir: w.config.Dir, Err: context.Cause(ctx)}
		}
		if buffer, err = w.readFrom(name, 0, buffer); err != nil {
			return &Error{Dir: w.config.Dir, Err: err}
		}
		if look(name, buffer) {
			return nil
		}
	}
	return nil
}

// readFrom returns a file's data from an offset on. It uses the memory of buffer if that is large enough.
func (w *Writer) readFrom(name string, offset int64, buffer []byte) ([]byte, error) {
	f, err := os.Open(w.path(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := max(info.Size()-offset, 0)
	buffer = slices.Grow(buffer[:0], int(size))[:size]
	n, err := f.ReadAt(buffer, offset)
	if errors.Is(err, io.EOF) { // a torn write was taken off meanwhile
		err = nil
	}
	return buffer[:n], err
}
