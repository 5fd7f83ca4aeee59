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

// Locks are named locks that are shared by all processes that use one directory. Each lock is an flock on a file of its
// own. The kernel releases the locks of a process that dies. During a rolling update, two instances of the plugin
// coordinate by them.
//
// A waiter tries again when this process releases a lock, and after growing pauses, because other processes don't
// signal a release. A blocking flock is not used, because it can't be interrupted: such a waiter would keep a thread
// and a descriptor after its caller has given up. Locks of open file descriptions (fcntl) have the same limit, and
// older instances of the plugin don't see them.
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

// Lock names a lock. Several callers can have the lock at once if all of them share it.
type Lock struct {
	Name   string
	Shared bool
	// Transient removes the lock's file when the lock is released. It is for names that are not used again, such as
	// those of claims. A transient lock is never shared.
	Transient bool
	// Kept keeps the lock's file open when the lock is released. It is for names that are locked again and again. A
	// kept lock is never transient.
	Kept bool
}

// holder names the holder of the lock if it can't be taken. A claim's own lock is transient, and only calls for that claim take
// it. All other locks are of functions.
func (lock Lock) holder() string {
	if lock.Transient {
		return "another call for the same claim, whose state `kata-vfio-plugin status` shows"
	}
	return "another claim's work"
}

// Acquire takes all the locks, in a fixed order. It returns the function that releases them, which may be called more
// than once. A name that occurs twice is locked once, and shared only if both are. If ctx ends first, Acquire takes no
// lock, and returns an error that wraps the cause.
//
// A caller that waits for an exclusive lock gets it before callers that ask to share it later, unless it waits longer
// than 40 seconds. So a caller must not share a lock that it shares already.
func (l *Locks) Acquire(ctx context.Context, locks ...Lock) (release func(), err error) {
	var held []heldLock
	release = sync.OnceFunc(func() {
		for _, h := range slices.Backward(held) {
			l.release(h)
		}
		l.wakeWaiters()
	})
	// All calls take locks in the same order, so that no two calls wait for each other.
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
			return heldLock{}, fmt.Errorf("lock %s is held by %s: %w", l.path(lock.Name), lock.holder(), context.Cause(ctx))
		}
	}
}

// tryInTurn tries to take a lock for a caller that waits for it. A caller that wants to share the lock lets a caller
// that waits for it exclusively go first.
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
	// If the file was removed meanwhile, a lock on it excludes nobody: the next caller creates another file and locks
	// that.
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

// open returns the file of a lock. It takes the file that was kept open, or opens it if none is kept or another caller
// has the kept one.
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

// release releases the lock. It removes the file of a transient lock while the lock is still held, so that only the
// lock's owner removes the file.
func (l *Locks) release(h heldLock) {
	if h.lock.Transient && !h.lock.Shared {
		_ = unix.Unlink(h.file.path) // Sweep removes a file that stays
	}
	if h.lock.Kept && unix.Flock(h.file.fd, unix.LOCK_UN) == nil && l.kept.put(h.lock.Name, h.file) {
		return
	}
	h.file.close() // the kernel drops the lock with the descriptor
}

// Sweep removes the files of free locks whose names begin with the prefix. Killed processes and old versions leave such
// files. The prefix must match only names that are locked as Transient.
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
