package writer

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// maintain drops the segments whose last event is older than the retention, the
// oldest first, never the newest: an event says so, then their hashes take their
// place, so that what is left can be proven as before. A damaged one is evidence
// and stays, with all behind it. The lock is held.
func (w *Writer) maintain() error {
	if w.Retain == 0 {
		return nil
	}
	names, err := w.segments()
	if err != nil {
		return err
	}
	at, _ := w.Now()
	for _, name := range names[:max(len(names)-1, 0)] {
		dropped, err := w.dropOlder(name, at.Add(-w.Retain))
		if err != nil {
			return fmt.Errorf("drop %s, which is older than %s: %w", name, w.Retain, err)
		}
		if !dropped {
			return nil
		}
	}
	return nil
}

// dropOlder drops one segment if all of it is older than the limit.
func (w *Writer) dropOlder(name string, limit time.Time) (bool, error) {
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		return false, err
	}
	s := ledger.CheckSegment(name, data, w.verifier)
	if s.Damage != nil || len(s.Torn) > 0 || len(s.Events) == 0 {
		return false, nil
	}
	first, err := ledger.DecodeEvent(s.Events[0])
	if err != nil {
		return false, nil //nolint:nilerr // of a newer version, which may know what to do with it
	}
	last, err := ledger.DecodeEvent(s.Events[len(s.Events)-1])
	if err != nil || !last.Time.Before(limit) {
		return false, nil //nolint:nilerr // as above
	}
	e := ledger.Event{Type: ledger.Retention, Result: ledger.OK, Reason: fmt.Sprintf(
		"events %d to %d, of %s to %s, are dropped after %s; their hashes are in %s",
		first.Seq, last.Seq, first.Time.Format(time.RFC3339), last.Time.Format(time.RFC3339), w.Retain, ledger.HashesName(first.Seq))}
	if err := w.commit([]ledger.Event{e}); err != nil {
		return false, err
	}
	return true, w.drop(s)
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
