package sysfstest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Modes of attributes, as the kernel's DEVICE_ATTR_RO, _RW and _WO give them.
const (
	readOnly  fs.FileMode = 0o444
	readWrite fs.FileMode = 0o644
	writeOnly fs.FileMode = 0o200
)

// scratch is where new contents are written before they are renamed to their
// place. A reader never sees an attribute half written, as it never does in
// sysfs, and a file's mode does not matter to its replacement.
const scratch = ".kernel"

// The methods below change the tree. Paths are relative to the node's root.
// Errors are kept by [Kernel.wrong]; a closed node is left alone. Callers hold mu.

// mkdir makes a directory and its parents.
func (k *Kernel) mkdir(name string) {
	if k.closed {
		return
	}
	if err := os.MkdirAll(k.Path(name), 0o755); err != nil {
		k.wrong("make a directory: %w", err)
	}
}

// create writes a new file into a directory that exists.
func (k *Kernel) create(name, content string, mode fs.FileMode) {
	if k.closed {
		return
	}
	if err := write(k.Path(name), content, mode); err != nil {
		k.wrong("make file %s: %w", name, err)
	}
}

// write writes a new file by bare system calls: [os.File] takes twice as many,
// and a large node is a quarter of a million of them.
func write(name, content string, mode fs.FileMode) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, uint32(mode))
	if err != nil {
		return err
	}
	if content != "" {
		_, err = unix.Write(fd, []byte(content))
	}
	return errors.Join(err, unix.Close(fd))
}

// put writes a file at once, whether it exists or not, with its parents.
func (k *Kernel) put(name, content string, mode fs.FileMode) {
	if k.closed {
		return
	}
	tmp := path.Join(scratch, "new")
	if err := write(k.Path(tmp), content, mode); err != nil {
		k.wrong("write %s: %w", name, err)
		return
	}
	if os.Rename(k.Path(tmp), k.Path(name)) == nil {
		return
	}
	k.mkdir(path.Dir(name))
	if err := os.Rename(k.Path(tmp), k.Path(name)); err != nil {
		k.wrong("replace %s: %w", name, err)
	}
}

// link makes a symbolic link to another path of the tree, relative as those of
// sysfs are. Its directory exists.
func (k *Kernel) link(name, to string) {
	if k.closed {
		return
	}
	rel, err := filepath.Rel(path.Dir(name), to)
	if err != nil {
		k.wrong("make a link: %w", err)
		return
	}
	k.symlink(name, rel)
}

// symlink makes a symbolic link with the very text.
func (k *Kernel) symlink(name, text string) {
	if k.closed {
		return
	}
	if err := os.Symlink(text, k.Path(name)); err != nil {
		k.wrong("make a link: %w", err)
	}
}

// remove removes a file, a link or a whole directory, if it is there.
func (k *Kernel) remove(name string) {
	if k.closed {
		return
	}
	if err := os.RemoveAll(k.Path(name)); err != nil {
		k.wrong("remove: %w", err)
	}
}

// exists reports whether there is something at name, links followed.
func (k *Kernel) exists(name string) bool {
	_, err := os.Stat(k.Path(name))
	return err == nil
}

// free returns the first of prefix0, prefix1, ... (from first on) that no
// child has, and takes it: the kernel too gives out the lowest free number.
func (k *Kernel) free(prefix string, first int) (name string, number int) {
	for n := max(first, k.lowest[prefix]); ; n++ {
		name := prefix + strconv.Itoa(n)
		if !k.taken[name] {
			k.taken[name] = true
			k.lowest[prefix] = n + 1
			return name, n
		}
	}
}

// giveBack makes the name of a child free again.
func (k *Kernel) giveBack(name string) {
	delete(k.taken, name)
	clear(k.lowest)
}

// lines joins lines, each with a newline.
func lines(all ...string) string {
	return strings.Join(all, "\n") + "\n"
}
