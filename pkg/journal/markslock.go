package journal

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A call for one function may rewrite the marks of others, and the plugin and its command do so at the same time. So each
// directory of marks has a lock, from the look at the marks to the last write. Otherwise a mark could be rewritten by
// what it was before another call changed it, and a stage or a quarantine would be lost.

// longestMarksWait limits the wait for the lock. Its holder waits only for the disk, but it may be a process that is
// stopped.
const longestMarksWait = 10 * time.Second

// alone calls work while nobody else changes marks of this kind: no call for another store of the directory, and no other
// process. The lock is the innermost: its holder waits for no other one. It is an flock of the directory. A directory that
// does not exist has no marks, and is not locked.
func (k marks[M]) alone(work func() error) error {
	fd, err := retry(func() (int, error) { return unix.Open(k.dir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) {
		return work()
	}
	if err != nil {
		return &FileError{Path: k.dir(), Err: fmt.Errorf("lock the marks of functions that are %s: %w", k.kind.of, err)}
	}
	defer func() { _ = unix.Close(fd) }() // the kernel drops the lock with the descriptor
	if err := flockInTime(fd, longestMarksWait); err != nil {
		return &FileError{Path: k.dir(), Err: fmt.Errorf("lock the marks of functions that are %s: %w", k.kind.of, err)}
	}
	return work()
}

// flockInTime takes an exclusive flock. It tries again after growing pauses, as [Locks] does.
func flockInTime(fd int, limit time.Duration) error {
	end := time.Now().Add(limit)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		_, err := retry(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("another process has held the lock for %s: end that process (`lsof` of the directory names it), and try again", limit)
		}
		<-time.After(pause)
	}
}
