package journal

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Callers that share a lock, for example the claims of one PF's VFs, can overlap without a gap. A caller that needs the
// lock exclusively would then never get it. So such a caller announces itself by a second lock, the turn. While it has
// the turn, no other caller begins to share the lock, and it gets the lock when the present callers have released it.

// longestTurn limits how long a waiter keeps others from sharing a lock. An Unprepare shares the lock for half a minute
// while it waits for a holder. An owner that hangs in the kernel never releases the lock, and must not stop the claims
// that share it.
const longestTurn = 40 * time.Second

// turn is a waiter's announcement that it wants a lock exclusively. It is not safe for concurrent use.
type turn struct {
	locks *Locks
	name  string
	ends  time.Time // zero before the announcement
	held  *heldLock // nil before the announcement and after its end
}

// newTurn returns the turn of a waiter for a lock.
func (l *Locks) newTurn(lock Lock) *turn {
	return &turn{locks: l, name: lock.Name + turnSuffix}
}

const turnSuffix = ".next"

// announce takes the turn, unless another waiter has it or this waiter's turn is over. It ends a turn that lasts too
// long. It may be repeated.
func (t *turn) announce() error {
	switch {
	case t.held != nil && time.Now().After(t.ends):
		t.end()
		return nil
	case t.held != nil || !t.ends.IsZero():
		return nil
	}
	h, err := t.locks.try(Lock{Name: t.name, Transient: true})
	if errors.Is(err, errTaken) {
		return nil
	}
	if err != nil {
		return err
	}
	t.held, t.ends = &h, time.Now().Add(longestTurn)
	return nil
}

// end lets others share the lock again. It may be repeated.
func (t *turn) end() {
	if t.held != nil {
		t.locks.release(*t.held)
		t.held = nil
	}
}

// isAwaited reports whether a waiter wants the lock exclusively. It does not create the file: usually nobody waits.
func (l *Locks) isAwaited(name string) (bool, error) {
	path := l.path(name + turnSuffix)
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err // a waiter that was killed leaves its file
}
