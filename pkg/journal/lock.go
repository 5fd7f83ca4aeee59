package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Locks are named locks shared by all processes that use one directory: flock on a file per name. The kernel drops
// them when the process dies. Two plugin instances of a rolling update coordinate by them.
//
// A waiter polls: when this process releases a lock, and after growing pauses, because other processes don't signal a
// release. flock itself can't be interrupted: a waiter that blocks in it would keep a thread and a descriptor after its
// caller has given up. Locks of open file descriptions (fcntl) have the same limit, and older instances don't see them.
type Locks struct {
	dir  string
	kept *keptFiles

	mu sync.Mutex // guards freed
	// freed is closed when this process next releases a lock.
	freed chan struct{}
}

// NewLocks returns the locks in dir, and creates the directory if it is missing.
func NewLocks(dir string) (*Locks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open locks: %w", err)
	}
	l := &Locks{dir: dir, kept: &keptFiles{files: map[string]*lockFile{}}, freed: make(chan struct{})}
	runtime.AddCleanup(l, (*keptFiles).closeAll, l.kept)
	return l, nil
}

// Lock names a lock. Several callers can have it at once if all share it.
type Lock struct {
	Name   string
	Shared bool
	// Transient removes the lock's file when the lock is released: for names that don't come back, such as those of
	// claims. A transient lock is never shared.
	Transient bool
	// Kept keeps the lock's file open when the lock is released: for names that are locked again and again. A kept lock
	// is never transient.
	Kept bool
}

// Acquire takes all the locks, in a fixed order, and returns the function that releases them, which may be called more
// than once. A name that occurs twice is locked once, shared only if both are. A caller that waits for an exclusive
// lock gets it before callers that ask to share it later, unless it waits longer than 40 seconds. So a caller must not
// share a lock that it shares already. If ctx ends first, Acquire takes no lock, and returns an error that wraps the
// cause.
func (l *Locks) Acquire(ctx context.Context, locks ...Lock) (release func(), err error) {
	var held []heldLock
	release = sync.OnceFunc(func() {
		for _, h := range slices.Backward(held) {
			l.release(h)
		}
		l.wakeWaiters()
	})
	// In one order, so that no two calls wait for each other.
	for _, lock := range ordered(locks) {
		h, err := l.take(ctx, lock)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, h)
	}
	return release, nil
}

// ordered sorts locks by name and merges those of one name.
func ordered(locks []Lock) []Lock {
	sorted := slices.SortedFunc(slices.Values(locks), func(a, b Lock) int {
		// An exclusive lock sorts before a shared one of its name, and CompactFunc keeps the first.
		if a.Name == b.Name && a.Shared != b.Shared && b.Shared {
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.CompactFunc(sorted, func(a, b Lock) bool { return a.Name == b.Name })
}

// Pauses between two tries of a waiter.
const (
	firstPause   = time.Millisecond
	longestPause = 50 * time.Millisecond
)

// take takes one lock.
func (l *Locks) take(ctx context.Context, lock Lock) (heldLock, error) {
	pause, turn := firstPause, l.newTurn(lock)
	defer turn.end()
	for {
		freed := l.nextRelease() // before the try, so that no release is missed
		h, err := l.tryInTurn(lock, turn)
		if !errors.Is(err, errTaken) {
			return h, err
		}
		select {
		case <-freed:
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return heldLock{}, fmt.Errorf("lock %s is held by another claim's work: %w", l.path(lock.Name), context.Cause(ctx))
		}
	}
}

// tryInTurn is try for a caller that waits until it has the lock.
func (l *Locks) tryInTurn(lock Lock, own *turn) (heldLock, error) {
	if lock.Shared {
		awaited, err := l.isAwaited(lock.Name)
		if err != nil {
			return heldLock{}, fmt.Errorf("lock %s: look for waiters: %w", l.path(lock.Name), err)
		}
		if awaited {
			return heldLock{}, errTaken
		}
		return l.try(lock)
	}
	h, err := l.try(lock)
	if !errors.Is(err, errTaken) || lock.Transient { // a transient lock is never shared
		return h, err
	}
	if err := own.announce(); err != nil {
		return heldLock{}, err
	}
	return heldLock{}, errTaken
}

// errTaken is the error for a lock that another process or caller has now.
var errTaken = errors.New("taken")

// try takes one lock if it is free, and returns errTaken if it is not.
func (l *Locks) try(lock Lock) (heldLock, error) {
	f, err := l.open(lock)
	if err != nil {
		return heldLock{}, fmt.Errorf("lock %s: %w", lock.Name, err)
	}
	how := unix.LOCK_EX
	if lock.Shared {
		how = unix.LOCK_SH
	}
	err = unix.Flock(f.fd, how|unix.LOCK_NB)
	// A lock on a file without a name excludes nobody: the next caller creates and locks another file.
	if errors.Is(err, unix.EWOULDBLOCK) || err == nil && !f.isNamed() {
		f.close()
		return heldLock{}, errTaken
	}
	if err != nil {
		f.close()
		return heldLock{}, fmt.Errorf("lock %s: %w", f.path, err)
	}
	return heldLock{lock: lock, file: f}, nil
}

// open returns the file of a lock: the one that was kept open, unless another caller has it now.
func (l *Locks) open(lock Lock) (*lockFile, error) {
	if f := l.kept.take(lock.Name); f != nil {
		return f, nil
	}
	path := l.path(lock.Name)
	// os.OpenFile would also register the file with the poller, which fails for regular files and costs a system call.
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600) })
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &lockFile{fd: fd, path: path}, nil
}

func (l *Locks) path(name string) string { return filepath.Join(l.dir, name+lockSuffix) }

const lockSuffix = ".lock"

// nextRelease returns a channel that is closed when this process next releases a
// lock.
func (l *Locks) nextRelease() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freed
}

func (l *Locks) wakeWaiters() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.freed)
	l.freed = make(chan struct{})
}

// heldLock is a lock that this process has.
type heldLock struct {
	lock Lock

	file *lockFile
}

// release releases the lock. It removes the file while the lock is still held, so that only the lock's owner removes
// it.
func (l *Locks) release(h heldLock) {
	if h.lock.Transient && !h.lock.Shared {
		_ = unix.Unlink(h.file.path) // Sweep removes a file that stays
	}
	if h.lock.Kept && unix.Flock(h.file.fd, unix.LOCK_UN) == nil && l.kept.put(h.lock.Name, h.file) {
		return
	}
	h.file.close() // the kernel drops the lock with the descriptor
}

// Sweep removes the files of free locks whose names begin with the prefix: killed processes and old versions leave them.
// Only names that are locked as Transient may be swept.
func (l *Locks) Sweep(prefix string) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("sweep locks: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), lockSuffix)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		// Only a free lock can be taken, and the release of a transient one removes its file.
		h, err := l.try(Lock{Name: name, Transient: true})
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sweep locks: %w", err)
		}
		l.release(h)
	}
	return nil
}
