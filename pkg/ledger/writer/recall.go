package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// recall has the tenancies of some claims. It covers the ledger up to the offset of a file to which the ledger was read. Its zero value has no
// tenancies.
type recall struct {
	mu     sync.Mutex // guards the fields below, and is held while the ledger is read
	events map[string][]ledger.Event
	file   string
	offset int64
}

// Recall reads the tenancies of claims in one pass over the ledger. Until forget is called, [Writer.Tenancy] answers from memory,
// and reads only newer events: at its start, the plugin asks for the tenancy of each record, and the ledger may have a gibibyte. A
// second Recall replaces the first.
func (w *Writer) Recall(ctx context.Context, uids []string) (forget func(), err error) {
	w.recall.mu.Lock()
	defer w.recall.mu.Unlock()
	file, offset := "", int64(0)
	found, err := w.tenancies(ctx, uids, func(name string, data []byte) {
		if file == "" { // the newest file comes first
			file, offset = name, int64(len(data))
		}
	})
	if err != nil {
		return nil, err
	}
	told := map[string][]ledger.Event{}
	for _, uid := range uids {
		told[uid] = found[uid]
	}
	w.recall.events, w.recall.file, w.recall.offset = told, file, offset
	return w.forget, nil
}

func (w *Writer) forget() {
	w.recall.mu.Lock()
	defer w.recall.mu.Unlock()
	w.recall.events = nil
}

// recalled returns the tenancy of a claim that Recall has read.
func (w *Writer) recalled(ctx context.Context, uid string) (events []ledger.Event, recalled bool, err error) {
	w.recall.mu.Lock()
	defer w.recall.mu.Unlock()
	if _, known := w.recall.events[uid]; !known {
		return nil, false, nil
	}
	if err := w.readOn(ctx); err != nil {
		return nil, true, &Error{Dir: w.config.Dir, Err: err}
	}
	return slices.Clone(w.recall.events[uid]), true, nil
}

// readOn reads the events that were written since the last call, and adds them. The caller holds the lock of the recall.
func (w *Writer) readOn(ctx context.Context) error {
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) { // there is no ledger yet
		return nil
	}
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for uid := range maps.Keys(w.recall.events) {
		open[uid] = true
	}
	first, _ := slices.BinarySearch(names, w.recall.file)
	for _, name := range names[first:] {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		offset := int64(0)
		if name == w.recall.file {
			offset = w.recall.offset
		}
		data, err := w.readFrom(name, offset, nil)
		if err != nil {
			return err
		}
		data = ledger.Complete(data)
		w.recall.add(tenanciesIn(data, open))
		w.recall.file, w.recall.offset = name, offset+int64(len(data))
	}
	return nil
}

// add adds events after the known ones. The lock is held.
func (r *recall) add(later map[string]*tenancy) {
	for uid, t := range later {
		switch {
		case t.begun:
			r.events[uid] = t.events
		case len(r.events[uid]) > 0:
			r.events[uid] = append(r.events[uid], t.events...)
		}
	}
}

// Last returns the last event of this boot, of one of the types, that concerns a function, or nil. It reads backwards from the end
// of the ledger, at most to the beginning of this boot, unless [Writer.Remember] has read these events already.
func (w *Writer) Last(ctx context.Context, a pci.Address, types ...ledger.Type) (last *ledger.Event, err error) {
	if last, known, err := w.remembered(ctx, a, types); known {
		return last, err
	}
	err = w.backwards(ctx, func(_ string, data []byte) bool {
		last = w.lastIn(data, a, types)
		return last != nil || !w.isThisBoot(data)
	})
	return last, err
}

// lastIn returns the last event in a segment's data that meets the conditions of [Writer.Last], or nil.
func (w *Writer) lastIn(data []byte, a pci.Address, types []ledger.Type) *ledger.Event {
	var last *ledger.Event
	word := []byte(a.String())
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, word) {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && e.BootID == w.config.BootID && e.Concerns(a) && slices.Contains(types, e.Type) {
			last = e
		}
	}
	return last
}

// isThisBoot reports whether the previous segment may have events of this boot: the segment's first event is of this boot, or it has none.
func (w *Writer) isThisBoot(data []byte) bool {
	for line := range bytes.Lines(data) {
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && e.Type != "" { // not the header
			return e.BootID == w.config.BootID
		}
	}
	return true
}

// Tenancy returns the events of a claim from its last [ledger.Prepare] on, in order. It returns none if the ledger has no Prepare
// of the claim. It reads backwards from the end of the ledger to that Prepare, unless [Writer.Recall] has read the claim's events
// already.
func (w *Writer) Tenancy(ctx context.Context, uid string) ([]ledger.Event, error) {
	if events, recalled, err := w.recalled(ctx, uid); recalled {
		return events, err
	}
	all, err := w.tenancies(ctx, []string{uid}, func(string, []byte) {})
	return all[uid], err
}

// tenancies is [Writer.Tenancy] of several claims, by UID. It reads the ledger once for all of them, and calls show for each file
// that it reads.
func (w *Writer) tenancies(ctx context.Context, uids []string, show func(name string, data []byte)) (map[string][]ledger.Event, error) {
	found, open := map[string][]ledger.Event{}, map[string]bool{}
	for _, uid := range uids {
		open[uid] = true
	}
	if len(open) == 0 {
		return found, nil
	}
	err := w.backwards(ctx, func(name string, data []byte) bool {
		if ledger.IsSegment(name) {
			data = ledger.Complete(data)
		}
		show(name, data)
		for uid, t := range tenanciesIn(data, open) {
			found[uid] = append(t.events, found[uid]...)
			if t.begun {
				delete(open, uid)
			}
		}
		return len(open) == 0
	})
	if err != nil {
		return nil, err
	}
	for uid := range open { // whose Prepare was not found
		delete(found, uid)
	}
	return found, nil
}

// tenancy is the part of a claim's last tenancy that is in one file. begun is set if the file has its Prepare.
type tenancy struct {
	events []ledger.Event
	begun  bool
}

// tenanciesIn returns the events of claims in a file's data: those from the claim's last Prepare on, or all if there is no Prepare.
func tenanciesIn(data []byte, uids map[string]bool) map[string]*tenancy {
	all := map[string]*tenancy{}
	for line := range bytes.Lines(data) {
		if !mentions(line, uids) {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || e.Claim == nil || !uids[e.Claim.UID] {
			continue
		}
		t := all[e.Claim.UID]
		if t == nil {
			t = &tenancy{}
			all[e.Claim.UID] = t
		}
		if e.Type == ledger.Prepare {
			t.events, t.begun = nil, true
		}
		t.events = append(t.events, *e)
	}
	return all
}

// claimWord precedes the UID of an event's claim. A tenant's text can't be mistaken for it: quotes in it are
// escaped.
const claimWord = `,"claim":{"uid":"`

// mentions reports whether an event's line belongs to one of the claims, without decoding the rest, which takes a hundred
// times as long.
func mentions(line []byte, uids map[string]bool) bool {
	_, rest, ok := bytes.Cut(line, []byte(claimWord))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return false
	}
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		return uids[string(rest[:end])]
	}
	var uid string
	_ = json.Unmarshal(append([]byte{'"'}, append(rest[:end:end], '"')...), &uid) // stays "" if it is not a string
	return uids[uid]
}
