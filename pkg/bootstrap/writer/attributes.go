package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// attributes returns a file's extended attributes (security contexts, ACLs).
func attributes(f *os.File) (map[string][]byte, error) {
	// The kernel's limit for a list of names, and for a value below (XATTR_LIST_MAX and XATTR_SIZE_MAX in
	// include/uapi/linux/limits.h).
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(f.Fd()), names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for name := range bytes.SplitSeq(bytes.TrimRight(names[:n], "\x00"), []byte{0}) {
		value := make([]byte, 64<<10)
		size, err := unix.Fgetxattr(int(f.Fd()), string(name), value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[string(name)] = value[:size]
	}
	return all, nil
}

func setAttributes(f *os.File, all map[string][]byte) error {
	for name, value := range all {
		if err := unix.Fsetxattr(int(f.Fd()), name, value, 0); err != nil {
			return fmt.Errorf("set attribute %s: %w", name, err)
		}
	}
	return nil
}

func isNotEmpty(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }

// Writable returns an error if a path is on a read-only file system. It does not try to write.
func (d *Disk) Writable(name string) error {
	dir := path.Dir(name)
	for {
		f, err := d.root.Open(dir)
		if errors.Is(err, fs.ErrNotExist) && dir != "." {
			dir = path.Dir(dir)
			continue
		}
		if err != nil {
			return explain("open the directory of", name, err)
		}
		var s unix.Statfs_t
		err = unix.Fstatfs(int(f.Fd()), &s)
		_ = f.Close() // nothing was written to it
		if err == nil && s.Flags&unix.ST_RDONLY != 0 {
			err = unix.EROFS
		}
		return explain("write", name, err)
	}
}

// ErrBusy says that another process holds the lock.
var ErrBusy = errors.New("another kata-vfio-bootstrap is running on this node")

// Lock locks an existing directory for this process until release is called or the process ends. It waits until ctx
// ends.
func (d *Disk) Lock(ctx context.Context, dir string) (release func(), err error) {
	f, err := d.root.Open(dir)
	if err != nil {
		return nil, explain("lock", dir, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// Without waiting in the kernel, where ctx could not end it.
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // the kernel drops the lock with the descriptor
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(explain("lock", dir, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx)), f.Close())
		}
	}
}

// explain wraps an error for people: it adds the attempted operation, the file and, if known, the solution. Nil
// stays nil.
func explain(what, name string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	hint := ""
	switch {
	case errors.Is(err, unix.EROFS):
		hint = "; the file system is read-only: mount it writable, or configure the node when you build its image"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "; free space there"
	case errors.Is(err, fs.ErrPermission):
		hint = "; run bootstrap as root, and check whether the file is immutable (lsattr)"
	case strings.Contains(err.Error(), "escapes from parent"):
		hint = "; its path has a link that is absolute or leads out of the root, and bootstrap follows neither: replace it with a directory or a relative link"
	}
	return fmt.Errorf("%s /%s: %w%s", what, name, err, hint)
}
