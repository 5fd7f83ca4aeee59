package sysfs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// LstatIn describes the named files in a directory, and does not follow links. The description of a file that can't be
// described is nil. LstatIn is not reported to a tap, and does not see an overlay.
func (f *FS) LstatIn(dir string, names ...string) []*unix.Stat_t {
	all := make([]*unix.Stat_t, len(names))
	fd, err := f.descriptor(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return all
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	for i, name := range names {
		var info unix.Stat_t
		if _, err := retry(func() (int, error) { return 0, unix.Fstatat(fd, name, &info, unix.AT_SYMLINK_NOFOLLOW) }); err == nil {
			all[i] = &info
		}
	}
	return all
}

// Links returns the names of the links in a directory. It is not reported to a tap, and does not see an overlay.
func (f *FS) Links(dir string) (map[string]bool, error) {
	file, err := f.file(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, reason(err))
	}
	defer func() { _ = file.Close() }() // nothing was written to it
	entries, err := file.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, reason(err))
	}
	return links(entries), nil
}

func links(entries []os.DirEntry) map[string]bool {
	found := map[string]bool{}
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink {
			found[e.Name()] = true
		}
	}
	return found
}

// Subdirs lists the directory in the kernel's order. names are all names, and dirs those of them that are directories,
// or may be, on a file system that does not say it. Subdirs is not reported to a tap, and lists the directory itself
// even if a copy answers for the node.
func (d *Dir) Subdirs() (names, dirs []string, err error) {
	err = d.eachRead(func(entries []byte) bool {
		eachEntry(entries, func(name string, kind byte) {
			names = append(names, name)
			if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
				dirs = append(dirs, name)
			}
		})
		return true
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list %s: %w", d.path, err)
	}
	return names, dirs, nil
}

// eachEntry walks what getdents64(2) returned: inode, offset, length of the entry, type and name.
func eachEntry(entries []byte, do func(name string, kind byte)) {
	const length, kind, name = 16, 18, 19
	for len(entries) > name {
		n := min(int(binary.NativeEndian.Uint16(entries[length:])), len(entries))
		if n <= name {
			return
		}
		text, _, _ := bytes.Cut(entries[name:n], []byte{0})
		if s := string(text); s != "." && s != ".." {
			do(s, entries[kind])
		}
		entries = entries[n:]
	}
}
