package writer

import (
	"bytes"
	"context"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Last returns the last event of this boot, of one of the types, that concerns a
// function; nil where there is none. It reads backwards from the end, as far as it must,
// and no further than to where the boot began.
func (w *Writer) Last(ctx context.Context, a pci.Address, types ...ledger.Type) (last *ledger.Event, err error) {
	err = w.backwards(ctx, func(_ string, data []byte) bool {
		last = w.lastIn(data, a, types)
		return last != nil || !w.isThisBoot(data)
	})
	return last, err
}

// lastIn returns the last such event in a segment's data.
func (w *Writer) lastIn(data []byte, a pci.Address, types []ledger.Type) *ledger.Event {
	var last *ledger.Event
	word := []byte(a.String())
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, word) {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && e.BootID == w.BootID && e.Concerns(a) && slices.Contains(types, e.Type) {
			last = e
		}
	}
	return last
}

// isThisBoot reports whether a segment's first event is of this boot, so that the one
// before may have more of it.
func (w *Writer) isThisBoot(data []byte) bool {
	for line := range bytes.Lines(data) {
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && e.Type != "" { // not the header
			return e.BootID == w.BootID
		}
	}
	return true
}
