package link

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Live reports whether the tree is that of a running node, whose interfaces can be
// asked for, and returns the path of its proc for [NewRtnetlink] then. A copy has
// no procfs, whatever its links say. The error says why a running node's network
// namespace is not to be had.
func Live(fs *sysfs.FS) (proc string, live bool, err error) {
	dir, err := fs.OpenDir("proc/1")
	if err != nil {
		return "", false, nil //nolint:nilerr // a tree without processes is no running node's
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(dir.Fd(), &stat); err != nil {
		return "", false, fmt.Errorf("look at the node's proc: %w", err)
	}
	if stat.Type != unix.PROC_SUPER_MAGIC {
		return "", false, nil
	}
	space, err := unix.Openat(dir.Fd(), "ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", true, fmt.Errorf("find the node's network namespace: %w", err)
	}
	_ = unix.Close(space) // nothing was written to it
	return filepath.Join(fs.Path(), "proc"), true, nil
}
