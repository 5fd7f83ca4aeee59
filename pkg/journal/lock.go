package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Locks are named locks shared by all processes that use one directory: flock
// on a file per name. The kernel drops them when the process dies. Two plugin
// instances of a rolling update agree by them.
type Locks struct{ dir string }

// NewLocks returns the locks in dir, which is made if it is missing.
func NewLocks(dir string) (*Locks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open locks: %w", err)
	}
	return &Locks{dir: dir}, nil
}

// Lock names a lock; several may have it at once if all share it.
type Lock struct {
	Name   string
	Shared bool
}

// Acquire takes all the locks, in one order for everybody, and returns the
// function that gives them back (it may be called more than once). A name that
// comes twice is taken once, shared only if both are. When ctx ends first,
// it takes none and returns an error that wraps ctx's.
func (l *Locks) Acquire(ctx context.Context, locks ...Lock) (release func(), err error) {
	var held []*os.File
	release = sync.OnceFunc(func() {
		for _, f := range slices.Backward(held) {
			_ = f.Close() // the kernel drops the lock with the descriptor
		}
	})
	for _, lock := range ordered(locks) {
		f, err := l.take(ctx, lock)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, f)
	}
	return release, nil
}

// ordered sorts locks by name and merges those of one name.
func ordered(locks []Lock) []Lock {
	sorted := slices.SortedFunc(slices.Values(locks), func(a, b Lock) int {
		if a.Name == b.Name && a.Shared != b.Shared && b.Shared {
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.CompactFunc(sorted, func(a, b Lock) bool { return a.Name == b.Name })
}

// take takes one lock.
func (l *Locks) take(ctx context.Context, lock Lock) (*os.File, error) {
	path := filepath.Join(l.dir, lock.Name+".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name, err)
	}
	how := unix.LOCK_EX
	if lock.Shared {
		how = unix.LOCK_SH
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return wait(ctx, f, how, path)
}

// wait blocks for a lock. flock can't be interrupted, so a goroutine waits,
// which, when abandoned, lets go of the lock as soon as it gets it.
func wait(ctx context.Context, f *os.File, how int, path string) (*os.File, error) {
	got := make(chan error)
	go func() {
		err := flock(f, how)
		select {
		case got <- err:
		case <-ctx.Done():
			_ = f.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		return f, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("lock %s is held by another claim's work: %w", path, context.Cause(ctx))
	}
}

// flock blocks until the lock is had; a signal to the thread is no end.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
