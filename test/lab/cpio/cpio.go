// Package cpio writes initramfs archives in the format that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst, "newc").
package cpio

import (
	"fmt"
	"io"
	"os"
	"path"
)

// Writer appends entries to an archive. The first error sticks; Close reports it.
type Writer struct {
	out   io.Writer
	inode int
	dirs  map[string]bool
	size  int
	err   error
}

// NewWriter begins an archive. Close ends it; it does not close out.
func NewWriter(out io.Writer) *Writer {
	return &Writer{out: out, dirs: map[string]bool{".": true, "/": true}}
}

// File adds a regular file with its parent directories.
func (w *Writer) File(name string, mode os.FileMode, data []byte) {
	w.parents(name)
	w.entry(name, 0o100000|uint32(mode.Perm()), data)
}

// Dir adds a directory with its parents.
func (w *Writer) Dir(name string) {
	w.parents(name)
	if !w.dirs[name] {
		w.dirs[name] = true
		w.entry(name, 0o040755, nil)
	}
}

func (w *Writer) parents(name string) {
	if dir := path.Dir(name); !w.dirs[dir] {
		w.Dir(dir)
	}
}

// Close ends the archive and returns the first error of any call.
func (w *Writer) Close() error {
	w.entry("TRAILER!!!", 0, nil)
	return w.err
}

// entry writes a header, a name that ends with NUL, and the data, each padded to four bytes.
func (w *Writer) entry(name string, mode uint32, data []byte) {
	w.inode++
	w.write([]byte(fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		w.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)))
	w.write([]byte(name + "\x00"))
	w.pad()
	w.write(data)
	w.pad()
}

func (w *Writer) pad() {
	w.write(make([]byte, (4-w.size%4)%4))
}

func (w *Writer) write(data []byte) {
	if w.err != nil {
		return
	}
	n, err := w.out.Write(data)
	w.size += n
	if err != nil {
		w.err = fmt.Errorf("write archive: %w", err)
	}
}
