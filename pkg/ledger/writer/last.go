package writer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Last returns the last event of one of the types that concerns a function, nil where
// there is none. It reads backwards from the end, as far as it must.
func (w *Writer) Last(ctx context.Context, a pci.Address, types ...ledger.Type) (*ledger.Event, error) {
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &Error{Dir: w.Dir, Err: err}
	}
	for _, name := range slices.Backward(names) {
		if err := ctx.Err(); err != nil {
			return nil, &Error{Dir: w.Dir, Err: context.Cause(ctx)}
		}
		data, err := os.ReadFile(w.path(name))
		if err != nil {
			return nil, &Error{Dir: w.Dir, Err: err}
		}
		if e := lastIn(data, a, types); e != nil {
			return e, nil
		}
	}
	return nil, nil
}

// lastIn returns the last such event in a segment's data.
func lastIn(data []byte, a pci.Address, types []ledger.Type) *ledger.Event {
	var last *ledger.Event
	word := []byte(a.String())
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, word) {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && e.Concerns(a) && slices.Contains(types, e.Type) {
			last = e
		}
	}
	return last
}
