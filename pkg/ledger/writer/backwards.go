package writer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// backwards calls look with the data of each segment from the newest on, until it has
// found what it looks for. A directory without a ledger has no segments.
func (w *Writer) backwards(ctx context.Context, look func(data []byte) (done bool)) error {
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{Dir: w.Dir, Err: err}
	}
	for _, name := range slices.Backward(names) {
		if ctx.Err() != nil {
			return &Error{Dir: w.Dir, Err: context.Cause(ctx)}
		}
		data, err := os.ReadFile(w.path(name))
		if err != nil {
			return &Error{Dir: w.Dir, Err: err}
		}
		if look(data) {
			return nil
		}
	}
	return nil
}
