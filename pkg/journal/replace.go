package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// replace writes a file of a directory whole: a temporary one, which gets the name once its content is on disk. After a
// crash the former file is there or this one, and maybe a temporary one. The new name is durable once the directory is.
//
// The os package would ask the poller about each file, and a library the kernel about each name, which makes half of the
// system calls: a claim writes its record four times.
func replace(dir, name string, data []byte) error {
	temporary := filepath.Join(dir, "."+name+strconv.FormatUint(rand.Uint64(), 10))
	if err := create(temporary, data); err != nil {
		_ = unix.Unlink(temporary) // if it is there
		return fmt.Errorf("write %s: %w", temporary, err)
	}
	if err := unix.Rename(temporary, filepath.Join(dir, name)); err != nil {
		_ = unix.Unlink(temporary)
		return fmt.Errorf("rename %s: %w", temporary, err)
	}
	return nil
}

// create makes a file that does not exist yet, durably but for its name.
func create(path string, data []byte) error {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	for len(data) > 0 && err == nil {
		var n int
		n, err = retry(func() (int, error) { return unix.Write(fd, data) })
		data = data[max(n, 0):]
	}
	if err == nil {
		err = fsync(fd)
	}
	if closeErr := unix.Close(fd); err == nil {
		err = closeErr
	}
	return err
}

// content reads a file that was replaced whole, and so has its size as long as it is open.
func content(path string, size int64) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	data := make([]byte, size+1)
	n, err := retry(func() (int, error) { return unix.Read(fd, data) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data[:n], nil
}

func fsync(fd int) error {
	_, err := retry(func() (int, error) { return 0, unix.Fsync(fd) })
	return err
}

// retry repeats a system call that a signal interrupted: the Go runtime preempts goroutines by signals.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
