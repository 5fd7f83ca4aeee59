package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// replace writes a file as a whole, and waits until its content is on disk. After a crash, the file has its former
// content or the new one, and a temporary file may be left. The new content is certain to survive a power failure only
// after the directory is synced.
//
// renameio.WriteFile is not used, because it would also stat the former file for its permissions, which are always
// 0600, and a claim writes its record four times.
func replace(path string, data []byte) (err error) {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }() // does nothing once the file is in place
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// version distinguishes a file from other files that have its name at other times.
type version struct {
	device, inode uint64
	size          int64
	written       time.Time
}

func fileVersion(st *unix.Stat_t) version {
	return version{device: st.Dev, inode: st.Ino, size: st.Size, written: time.Unix(st.Mtim.Unix())}
}

// isAt reports whether the path still leads to the file.
func (v version) isAt(path string) bool {
	var st unix.Stat_t
	_, err := retry(func() (int, error) { return 0, unix.Stat(path, &st) })
	return err == nil && fileVersion(&st) == v
}

// content reads a file that is only ever replaced as a whole. It also returns the version of the file that it read,
// because the name may lead to another file a moment later. Package os is not used: it would also register the file
// with the poller, which doubles the number of system calls.
func content(path string) (data []byte, read version, err error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, read, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Fstat(fd, &st) }); err != nil {
		return nil, read, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	data = make([]byte, st.Size+1)
	n, err := retry(func() (int, error) { return unix.Read(fd, data) })
	if err != nil {
		return nil, read, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data[:n], fileVersion(&st), nil
}

// MakeDir creates a directory (mode 0700) and its missing parents durably. It may be repeated, even after a crash, when
// the entry of an existing directory may not be on disk yet.
func MakeDir(dir string) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !isDir(dir) {
		return err
	}
	return syncDir(parent)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
