package journal

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Writable returns a [FileError] if records can't be read and written now, because the directory is missing or its file
// system is read-only. It writes nothing, so it may be called often. It does not check the space on the disk: see
// [Reserves].
func (s *Store) Writable() error {
	if err := unix.Access(s.dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return &FileError{Path: s.dir, Err: fmt.Errorf("the journal can't be used: %w", err)}
	}
	return nil
}
