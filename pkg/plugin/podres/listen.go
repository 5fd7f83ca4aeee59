package podres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Listen takes the socket at path over, from an earlier instance that still
// serves or has died: there is no moment without a server. The file stays when
// the listener is closed, so that a call is refused then: Kata takes that as an
// error, but a missing file as leave to plug what annotations say.
//
// The directory is made if it is missing, for our user alone. One that others
// can write to, or anything at path but a socket of ours, is an error: whoever
// owns the socket decides which devices VMs get. A crash leaves at most one
// temporary socket, which the next Listen removes.
func Listen(ctx context.Context, path string) (*net.UnixListener, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listen for Kata on %s: %w", path, err)
	}
	return l, nil
}

func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	locks, err := journal.NewLocks(dir)
	if err != nil {
		return nil, err
	}
	if err := guardDir(dir); err != nil {
		return nil, err
	}
	// While it is held, a temporary socket that is there is a dead instance's.
	release, err := locks.Acquire(ctx, journal.Lock{Name: filepath.Base(path)})
	if err != nil {
		return nil, err
	}
	defer release()
	if err := guardSocket(path); err != nil {
		return nil, err
	}
	return takeOver(ctx, path)
}

// takeOver binds another name and renames it over path.
func takeOver(ctx context.Context, path string) (*net.UnixListener, error) {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sweep a dead instance's socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", temp)
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listener is a %T", l), l.Close())
	}
	unix.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(), os.Remove(temp))
	}
	return unix, nil
}

// guardDir refuses a directory in which another user could put a socket.
func guardDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory (%s)", dir, info.Mode())
	case !isOurs(info):
		return fmt.Errorf("directory %s is not owned by user %d: its owner could serve Kata; remove it", dir, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("directory %s is writable by others (%s), who could serve Kata: chmod go-w it", dir, info.Mode())
	}
	return nil
}

// guardSocket refuses to replace what no instance of ours has left.
func guardSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("there is something else than a socket (%s): remove it", info.Mode())
	case !isOurs(info):
		return fmt.Errorf("the socket there is not owned by user %d: find out who made it and remove it", os.Geteuid())
	}
	return nil
}

// isOurs reports whether a file belongs to our user.
func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == uint32(os.Geteuid())
}
