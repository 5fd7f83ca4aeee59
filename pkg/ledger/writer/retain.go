package writer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Defaults for Config's retention, as the plugin has them. A claim takes some
// twenty kilobytes: a gibibyte is more than fifty thousand of them.
const (
	DefaultRetain            = 365 * 24 * time.Hour
	DefaultRetainBytes int64 = 1 << 30
)

// maintain drops the oldest segments, but never the newest: those whose last event is older than the retention, and as
// many as exceed the limit of bytes. Age is measured by [ledger.Event.Elapsed]: a clock that is wrong for a moment drops no
// evidence. An event records that, and the hashes of the dropped events stay, so that the rest
// can still be proven. A damaged segment is evidence: it stays, with all later ones. The lock is held.
func (w *Writer) maintain() error {
	if w.Retain == 0 && w.RetainBytes == 0 {
		return nil
	}
	names, err := w.segments()
	if err != nil {
		return err
	}
	total, err := w.bytesOf(names)
	if err != nil {
		return err
	}
	for _, name := range names[:max(len(names)-1, 0)] {
		dropped, err := w.dropOldest(name, total)
		if err != nil {
			return fmt.Errorf("drop %s by the retention: %w", name, err)
		}
		if dropped == 0 {
			return nil
		}
		total -= dropped
	}
	return nil
}

// bytesOf returns how many bytes segments have.
func (w *Writer) bytesOf(names []string) (total int64, err error) {
	for _, name := range names {
		info, err := os.Stat(w.path(name))
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// dropOldest drops a segment if its age, or the total size of all segments, exceeds the retention. It returns the size
// of the dropped segment.
func (w *Writer) dropOldest(name string, total int64) (int64, error) {
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		return 0, err
	}
	if last := lastEvent(data); last == nil || w.whyDrop(last, total) == "" {
		return 0, nil
	}
	s := ledger.CheckSegment(name, data, w.verifier)
	if s.Damage != nil || len(s.Torn) > 0 || len(s.Events) == 0 {
		return 0, nil
	}
	first, err := ledger.DecodeEvent(s.Events[0])
	if err != nil {
		return 0, nil //nolint:nilerr // of a newer version, which may know what to do with it
	}
	last, err := ledger.DecodeEvent(s.Events[len(s.Events)-1])
	if err != nil {
		return 0, nil //nolint:nilerr // as above
	}
	why := w.whyDrop(last, total)
	e := ledger.Event{Type: ledger.Retention, Result: ledger.OK, Reason: fmt.Sprintf(
		"events %d to %d, from %s to %s, were dropped %s; their hashes are in %s",
		first.Seq, last.Seq, first.Time.Format(time.RFC3339), last.Time.Format(time.RFC3339), why, ledger.HashesName(first.Seq))}
	if err := w.commit([]ledger.Event{e}); err != nil {
		return 0, err
	}
	return int64(len(data)), w.drop(s)
}

// lastEvent returns the last event in a segment's data, nil without an event. It does not verify the segment, which
// would take a second: usually nothing has to be dropped.
func lastEvent(data []byte) *ledger.Event {
	for len(data) > 0 {
		begin := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
		if e, err := ledger.DecodeEvent(bytes.TrimSuffix(data[begin:], []byte("\n"))); err == nil && !e.Time.IsZero() {
			return e
		}
		data = data[:begin]
	}
	return nil
}

// whyDrop returns why a segment with that last event is to go; "" where it stays.
func (w *Writer) whyDrop(last *ledger.Event, total int64) string {
	switch age := time.Duration(w.lookAtClocks().elapsed - last.Elapsed); {
	case w.Retain > 0 && age > w.Retain:
		return fmt.Sprintf("after %s", w.Retain)
	case w.RetainBytes > 0 && total > w.RetainBytes:
		return fmt.Sprintf("because all segments have %d bytes, and the limit is %d", total, w.RetainBytes)
	}
	return ""
}

// drop puts the hashes of a segment in its place.
func (w *Writer) drop(s *ledger.Segment) error {
	hashes := make([]byte, 0, len(s.Events)*tlog.HashSize)
	for _, line := range s.Events {
		leaf := tlog.RecordHash(line)
		hashes = append(hashes, leaf[:]...)
	}
	if err := w.replace(ledger.HashesName(s.Before.Size), hashes, 0o600); err != nil {
		return err
	}
	return errors.Join(os.Remove(w.path(s.Name)), w.syncDir())
}
