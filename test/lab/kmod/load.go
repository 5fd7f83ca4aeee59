package kmod

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LoadFile loads an uncompressed module, without what it depends on. A module that is loaded already is not an error.
func LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	defer f.Close() // read only: nothing is lost
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", path, err)
	}
	return nil
}
