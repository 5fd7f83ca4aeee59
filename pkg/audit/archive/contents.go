package archive

import (
	"fmt"
	"io"
	"path"
)

// contents counts what an archive unpacks to. Writers count as readers do, so that they make no archive that a reader refuses.
type contents struct {
	entries int   // files, links and directories
	total   int64 // bytes
}

// count counts an entry, named or implied, that takes some bytes of the disk, and refuses it beyond the limits.
func (c *contents) count(name string, size int64) error {
	if c.entries++; c.entries > maxEntries {
		return fmt.Errorf("it has more than %d files and directories: %.128q is the next", maxEntries, name)
	}
	if c.total += size; c.total > maxTotal {
		return fmt.Errorf("file %.128q is too large: %d bytes, %d with those before it and their directories", name, size, c.total)
	}
	return nil
}

// countFile is count for a regular file, which has its own limit.
func (c *contents) countFile(name string, size int64) error {
	if size > maxFile {
		return fmt.Errorf("file %.128q is too large: %d bytes", name, size)
	}
	return c.count(name, size)
}

// fits refuses an entry whose name or target readers refuse.
func (e *entry) fits(place string) error {
	switch {
	case !inside(place):
		return fmt.Errorf("%.128q is not a clean relative path of at most %d bytes and %d elements", place, maxPath, maxDepth)
	case len(e.target) > maxPath:
		return fmt.Errorf("link %.128q leads to a path of %d bytes, and readers allow %d", place, len(e.target), maxPath)
	}
	return nil
}

// measure counts an entry that is about to be written, and the directories above it.
func (w *writer) measure(place string, e *entry) error {
	if err := w.measureDirectory(path.Dir(place)); err != nil {
		return err
	}
	switch {
	case e.link:
		return w.count(place, 0)
	case e.isDir():
		if err := w.count(place, 0); err != nil { // readers count a directory that is named again
			return err
		}
		return w.measureDirectory(place)
	case e.read:
		return w.countFile(place, int64(len(e.data)))
	}
	return w.count(place, 0)
}

// measureDirectory counts a directory and those above it, each once.
func (w *writer) measureDirectory(name string) error {
	for at := name; at != "." && !w.made[at]; at = path.Dir(at) {
		w.made[at] = true
		if err := w.count(at, bytesOfDir); err != nil {
			return err
		}
	}
	return nil
}

// limited refuses to write more bytes than a reader reads.
type limited struct {
	to   io.Writer
	left int64
}

func (l *limited) Write(data []byte) (int, error) {
	if l.left -= int64(len(data)); l.left < 0 {
		return 0, fmt.Errorf("it has more bytes than readers read: %d MiB packed, %d MiB unpacked", maxArchive>>20, maxStream>>20)
	}
	return l.to.Write(data)
}
