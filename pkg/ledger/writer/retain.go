package writer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Defaults of the plugin for Config's retention. The events of a claim take about twenty kilobytes, so a gibibyte holds more than
// fifty thousand claims.
const (
	DefaultRetain            = 365 * 24 * time.Hour
	DefaultRetainBytes int64 = 1 << 30
)

// file is a file with events: a segment, or the kept events of a dropped segment.
type file struct {
	name string
	size int64
}

// maintain drops old events: files whose last event is older than the retention and, while the ledger exceeds its limit of bytes,
// the oldest events of the tenants that use more than their share. It never drops the newest segment. Age is measured by
// [ledger.Event.Elapsed]: a clock that is wrong for a moment drops no evidence. An event records what is dropped, and the hashes of
// the dropped events stay, so that the other events can still be proven. A damaged file is evidence: maintain never cuts it, and
// stops where it would have to. The lock is held.
func (w *Writer) maintain() error {
	if w.config.Retain == 0 && w.config.RetainBytes == 0 {
		return nil
	}
	files, err := w.files()
	if err != nil {
		return err
	}
	if files, err = w.dropOld(files); err != nil {
		return fmt.Errorf("drop old events: %w", err)
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	if w.config.RetainBytes == 0 || total <= w.config.RetainBytes {
		return nil
	}
	if err := w.cutToShares(files, total); err != nil {
		return fmt.Errorf("keep the ledger below its limit of bytes: %w", err)
	}
	return nil
}

// files returns the files with events, in order.
func (w *Writer) files() ([]file, error) {
	names, err := w.history()
	if err != nil {
		return nil, err
	}
	files := make([]file, len(names))
	for i, name := range names {
		info, err := os.Stat(w.path(name))
		if err != nil {
			return nil, err
		}
		files[i] = file{name: name, size: info.Size()}
	}
	return files, nil
}

// dropOld drops the files that are older than the retention, and returns the others.
func (w *Writer) dropOld(files []file) ([]file, error) {
	if w.config.Retain == 0 {
		return files, nil
	}
	var buffer []byte
	var err error
	for len(files) > 1 {
		if buffer, err = w.readFrom(files[0].name, 0, buffer); err != nil {
			return nil, err
		}
		last := lastEvent(buffer)
		if last == nil || time.Duration(w.lookAtClocks().elapsed-last.Elapsed) <= w.config.Retain {
			break
		}
		if cut, err := w.cut(files[0].name, nil, fmt.Sprintf("after %s", w.config.Retain)); err != nil || !cut {
			return files, err
		}
		files = files[1:]
	}
	return files, nil
}

// lastEvent returns the last event in a file's data, or nil. It does not verify the file, which would take a second, because
// usually nothing has to be dropped.
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

// cut drops the events of some tenants from a file, or all events if of is nil, and records why. It returns false for a file that
// must stay: a damaged one, or one with events that this version does not understand.
func (w *Writer) cut(name string, of []tenant, why string) (bool, error) {
	first, leaves, lines, err := w.sound(name)
	if err != nil || len(lines) == 0 {
		return false, err
	}
	var stay bytes.Buffer
	gone := slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool {
		stays := of != nil && !slices.Contains(of, whose(line))
		if stays {
			stay.Write(line)
			stay.WriteByte('\n')
		}
		return stays
	})
	if len(gone) == 0 {
		return true, nil
	}
	e, understood := retentionEvent(gone, of, why, ledger.HashesName(first))
	if !understood {
		return false, nil
	}
	// The order is: event, hashes, file. While the segment exists, it has precedence over its hashes, so the next cut after a crash
	// repeats the remaining steps.
	if err := w.commit([]ledger.Event{e}); err != nil {
		return false, err
	}
	if leaves != nil {
		if err := w.replace(ledger.HashesName(first), leaves, 0o600); err != nil {
			return false, err
		}
	}
	return true, w.keep(name, ledger.KeptName(first), stay.Bytes())
}

// sound returns the events of an undamaged file: the number of the first event of its segment, the hashes that are to replace the
// file if it is a segment, and the lines. There are no lines if the file is damaged.
func (w *Writer) sound(name string) (first int64, leaves []byte, lines [][]byte, err error) {
	if ledger.IsKept(name) {
		first = ledger.FirstSeq(name)
		lines, damage, err := ledger.ReadKept(os.DirFS(w.config.Dir), first)
		if err != nil || damage != nil {
			return 0, nil, nil, err
		}
		return first, nil, lines, nil
	}
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		return 0, nil, nil, err
	}
	s := ledger.CheckSegment(name, data, w.verifier)
	if s.Damage != nil || len(s.Torn) > 0 {
		return 0, nil, nil, nil
	}
	for _, line := range s.Events {
		leaf := tlog.RecordHash(line)
		leaves = append(leaves, leaf[:]...)
	}
	return s.Before.Size, leaves, s.Events, nil
}

// retentionEvent returns the event that says which events are dropped. understood is false if this version can't decode these
// events: a newer version may know what to do with them.
func retentionEvent(gone [][]byte, of []tenant, why, hashes string) (e ledger.Event, understood bool) {
	first, err := ledger.DecodeEvent(gone[0])
	if err != nil {
		return e, false
	}
	last, err := ledger.DecodeEvent(gone[len(gone)-1])
	if err != nil {
		return e, false
	}
	what := fmt.Sprintf("events %d to %d, from %s to %s,", first.Seq, last.Seq, first.Time.Format(time.RFC3339), last.Time.Format(time.RFC3339))
	if of != nil {
		what = fmt.Sprintf("of %s those of %s", what, words(of))
	}
	return ledger.Event{Type: ledger.Retention, Result: ledger.OK, Reason: fmt.Sprintf("%s were dropped %s; their hashes are in %s", what, why, hashes)}, true
}

// keep replaces a file by the events that stay, or removes it if none stay. If the file is a segment, its hashes are on disk already.
func (w *Writer) keep(name, kept string, stay []byte) error {
	if len(stay) > 0 {
		if err := w.replace(kept, stay, 0o600); err != nil || name == kept {
			return err
		}
	} else if err := os.Remove(w.path(kept)); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash can leave it beside its segment
		return err
	}
	if name != kept {
		if err := os.Remove(w.path(name)); err != nil {
			return err
		}
	}
	return w.syncDir()
}
