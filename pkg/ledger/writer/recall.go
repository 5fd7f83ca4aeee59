package writer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// recall has the tenancies of claims up to a place in the ledger. Its zero value has none.
type recall struct {
	mu     sync.Mutex // guards those below, and is held while the ledger is read
	events map[string][]ledger.Event
	file   string
	offset int64
}

// Recall reads the tenancies of claims in one pass over the ledger. Until forget is called
// [Writer.Tenancy] has them from memory, and reads only what was written since: a start
// asks for each record, and the ledger may have a gibibyte. A second Recall takes the
// place of the first.
func (w *Writer) Recall(ctx context.Context, uids []string) (forget func(), err error) {
	w.recall.mu.Lock()
	defer w.recall.mu.Unlock()
	file, offset := "", int64(0)
	found, err := w.tenancies(ctx, uids, func(name string, data []byte) {
		if file == "" { // the newest comes first
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
		return nil, true, &Error{Dir: w.Dir, Err: err}
	}
	return slices.Clone(w.recall.events[uid]), true, nil
}

// readOn adds what was written since. The lock of the recall is held.
func (w *Writer) readOn(ctx context.Context) error {
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) { // there was none yet
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

// add adds events behind those that are known. The lock is held.
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
