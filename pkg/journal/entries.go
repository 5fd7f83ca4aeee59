package journal

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// entries makes the entries of a directory durable. A rename alone does not do that (fsync(2)). Claims that wait at the
// same time share one fsync.
type entries struct {
	dir   string
	fsync func(dir string) error
	turn  chan struct{} // held during an fsync

	mu   sync.Mutex // guards next
	next *round
}

// round is an fsync that has not begun, and all callers that wait for it.
type round struct {
	done chan struct{}
	err  error // once done is closed
}

func newEntries(dir string) *entries {
	return &entries{dir: dir, fsync: syncDir, turn: make(chan struct{}, 1)}
}

// sync returns when all changes of the directory's entries that were made before the call are durable.
func (e *entries) sync() error {
	r, leads := e.join()
	if !leads {
		<-r.done
		return r.err
	}
	// While an earlier fsync runs, later callers join this round. The round is closed before its own fsync begins,
	// because a change made after that may miss it.
	e.turn <- struct{}{}
	e.close()
	r.err = e.fsync(e.dir)
	<-e.turn
	close(r.done)
	return r.err
}

// join returns the next round. The first caller in it executes it.
func (e *entries) join() (r *round, leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		e.next, leads = &round{done: make(chan struct{})}, true
	}
	return e.next, leads
}

// close closes the round for new callers, because a change that is made later needs another round.
func (e *entries) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = nil
}

func syncDir(dir string) error {
	// fsync of a file does not cover its name: the directory has to be synced as well (fsync(2)).
	fd, err := retry(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err == nil {
		_, err = retry(func() (int, error) { return 0, unix.Fsync(fd) })
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
