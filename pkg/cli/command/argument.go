package command

import (
	"io"
	"os"
)

// ReadArgument reads a file that the command line names, "-" being standard input.
// One that can't be read, or has more than limit bytes, is a [UsageError].
func ReadArgument(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, Usagef("%w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, Usagef("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, Usagef("%s has more than %d bytes", name, limit)
	}
	return data, nil
}
