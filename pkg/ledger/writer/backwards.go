package writer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

// backwards calls look with the data of each segment from the newest on, until it has
// found what it looks for. The data are valid during the call only. A directory without
// a ledger has no segments.
func (w *Writer) backwards(ctx context.Context, look func(name string, data []byte) (done bool)) error {
	names, err := w.segments()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{Dir: w.Dir, Err: err}
	}
	var buffer []byte
	for _, name := range slices.Backward(names) {
		if ctx.Err() != nil {
			return &Error{Dir: w.Dir, Err: context.Cause(ctx)}
		}
		if buffer, err = w.readFrom(name, 0, buffer); err != nil {
			return &Error{Dir: w.Dir, Err: err}
		}
		if look(name, buffer) {
			return nil
		}
	}
	return nil
}

// readFrom returns a segment's data from an offset on, in the buffer where they have room.
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
