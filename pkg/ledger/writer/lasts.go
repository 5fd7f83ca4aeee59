package writer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// lasts has the last events of this boot that concern some functions. It covers the ledger up to the offset of a file to which the
// ledger was read. Its zero value has no events.
type lasts struct {
	mu     sync.Mutex // guards the fields below, and is held while the ledger is read
	types  []ledger.Type
	known  map[pci.Address]map[ledger.Type]placed
	file   string
	offset int64
}

// placed is an event and its place in the ledger. The zero value is before all events.
type placed struct {
	event  *ledger.Event
	file   string // the names of segments are in the order of time
	offset int64
}

func (p placed) before(o placed) bool {
	return strings.Compare(p.file, o.file) < 0 || p.file == o.file && p.offset < o.offset
}

// Remember reads the last events of this boot, of some types, that concern functions: in one pass over the ledger for all of them.
// Until the next Remember, [Writer.Last] answers for these functions and types from memory, and reads only newer events. If all
// functions of a call are remembered already, it reads nothing. Functions that a call does not name are forgotten.
func (w *Writer) Remember(ctx context.Context, addrs []pci.Address, types ...ledger.Type) error {
	w.lasts.mu.Lock()
	defer w.lasts.mu.Unlock()
	l := &w.lasts
	if !slices.Equal(l.types, types) {
		l.known, l.types, l.file, l.offset = nil, types, "", 0
	}
	known, fresh := map[pci.Address]map[ledger.Type]placed{}, false
	for _, a := range addrs {
		if known[a] = l.known[a]; known[a] == nil {
			known[a], fresh = map[ledger.Type]placed{}, true
		}
	}
	if !fresh {
		l.known = known
		return nil
	}
	file, offset := "", int64(0)
	err := w.backwards(ctx, func(name string, data []byte) bool {
		older := !w.isThisBoot(data)
		data = ledger.Complete(data)
		if file == "" { // the newest file comes first
			file, offset = name, int64(len(data))
		}
		w.note(known, types, name, 0, data)
		return older
	})
	if err != nil {
		return err
	}
	l.known, l.file, l.offset = known, file, offset
	return nil
}

// remembered answers [Writer.Last] from what [Writer.Remember] has read and from the events since then. known is false if Remember
// was not called for the function and the types.
func (w *Writer) remembered(ctx context.Context, a pci.Address, types []ledger.Type) (last *ledger.Event, known bool, err error) {
	w.lasts.mu.Lock()
	defer w.lasts.mu.Unlock()
	events := w.lasts.known[a]
	if events == nil || slices.ContainsFunc(types, func(t ledger.Type) bool { return !slices.Contains(w.lasts.types, t) }) {
		return nil, false, nil
	}
	if err := w.noteNewer(ctx); err != nil {
		return nil, true, &Error{Dir: w.config.Dir, Err: err}
	}
	var latest placed
	for _, t := range types {
		if latest.before(events[t]) {
			latest = events[t]
		}
	}
	return latest.event, true, nil
}

// noteNewer reads the events that were written since the last call, and adds them. The caller holds the lock.
func (w *Writer) noteNewer(ctx context.Context) error {
	l := &w.lasts
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) { // there is no ledger yet
		return nil
	}
	if err != nil {
		return err
	}
	first, _ := slices.BinarySearch(names, l.file)
	for _, name := range names[first:] {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		offset := int64(0)
		if name == l.file {
			offset = l.offset
		}
		data, err := w.readFrom(name, offset, nil)
		if err != nil {
			return err
		}
		data = ledger.Complete(data)
		w.note(l.known, l.types, name, offset, data)
		l.file, l.offset = name, offset+int64(len(data))
	}
	return nil
}

// note enters those events into known that are in a part of a segment, which begins at the offset, and are later than the known events.
func (w *Writer) note(known map[pci.Address]map[ledger.Type]placed, types []ledger.Type, file string, offset int64, data []byte) {
	for line := range bytes.Lines(data) {
		at := placed{file: file, offset: offset}
		offset += int64(len(line))
		concerned := devicesIn(line, known)
		if len(concerned) == 0 {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || e.BootID != w.config.BootID || !slices.Contains(types, e.Type) {
			continue
		}
		at.event = e
		for _, a := range concerned {
			if e.Concerns(a) && known[a][e.Type].before(at) {
				known[a][e.Type] = at
			}
		}
	}
}

// deviceWord precedes the address of an event's device.
const deviceWord = `"address":"`

// devicesIn returns the known functions that an event's line may concern, without decoding the line.
func devicesIn(line []byte, known map[pci.Address]map[ledger.Type]placed) []pci.Address {
	var found []pci.Address
	for rest, ok := line, true; ok; {
		if _, rest, ok = bytes.Cut(rest, []byte(deviceWord)); !ok {
			break
		}
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			break
		}
		a, err := pci.ParseAddress(string(rest[:end]))
		if _, asked := known[a]; err == nil && asked && !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	return found
}
