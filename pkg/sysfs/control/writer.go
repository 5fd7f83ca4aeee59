package control

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// RootWriter writes attributes below one directory and nowhere else.
type RootWriter struct {
	root *os.Root
}

var _ Writer = (*RootWriter)(nil)

// NewWriter returns a writer for the node whose sys directory lies in root:
// "/" for this one. Paths can't leave root, not through links either.
func NewWriter(root string) (*RootWriter, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the node's root: %w", err)
	}
	return &RootWriter{root: r}, nil
}

// Close releases the root. Writes that are in the kernel continue.
func (w *RootWriter) Close() error { return w.root.Close() }

// Write implements [Writer]. It opens the file for writing only, without O_CREATE: sysfs would answer EACCES for a
// missing attribute, and another file system would create a file.
//
// It calls write(2) once. [os.File.Write] repeats a short write, and, because sysfs files can be polled, blocks the
// goroutine forever if the kernel answers EAGAIN, as it does for a deferred probe.
func (w *RootWriter) Write(path string, data []byte) error {
	f, err := w.root.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	fd, err := descriptor(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	n, err := unix.Write(fd, data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return errors.Join(err, f.Close())
}

// descriptor returns the descriptor of f, which is valid until f is closed. [os.File.Fd] would also make it blocking: a
// write would wait instead of returning EAGAIN.
func descriptor(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = conn.Control(func(open uintptr) { fd = int(open) })
	return fd, err
}
