package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A call for one function may rewrite the marks of others, and the plugin and its command do so at the same time. So each
// directory of marks has a lock, from the look at the marks to the last write. Otherwise a mark could be rewritten by
// what it was before another call changed it, and a stage or a quarantine would be lost.

// longestMarksWait limits the wait for the lock if the caller's context has no deadline. The lock's holder waits only
// for the disk, but it may be a process that is stopped.
const longestMarksWait = time.Minute

// alone calls work while nobody else changes marks of this kind: no call for another store of the directory, and no other
// process. The lock is the innermost: its holder waits for no other one. It is an flock of the directory. A directory that
// does not exist has no marks, and is not locked. If the lock is free, work is called even if ctx has ended.
func (k marks[M]) alone(ctx context.Context, work func() error) error {
	fd, err := retry(func() (int, error) { return unix.Open(k.dir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) {
		return work()
	}
	if err != nil {
		return &FileError{Path: k.dir(), Err: fmt.Errorf("lock the marks of functions that are %s: %w", k.kind.of, err)}
	}
	defer func() { _ = unix.Close(fd) }() // the kernel drops the lock with the descriptor
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestMarksWait)
		defer cancel()
	}
	if err := flock(ctx, fd); err != nil {
		return &FileError{Path: k.dir(), Err: fmt.Errorf("lock the marks of functions that are %s: %w", k.kind.of, err)}
	}
	return work()
}

// flock takes an exclusive flock. It tries again after growing pauses, as [Locks] does, until ctx ends.
func flock(ctx context.Context, fd int) error {
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		_, err := retry(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("other work, of the plugin or of one of its commands, still changed them after %s (%w): the next try continues; "+
				"if it fails too, see whether the disk is slow or a `kata-vfio-plugin` command is suspended",
				time.Since(begun).Round(time.Millisecond), context.Cause(ctx))
		}
	}
}
