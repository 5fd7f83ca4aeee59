package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// shareInTurns has callers of an instance share a lock, overlapping without a gap, until ctx ends.
func shareInTurns(ctx context.Context, t *testing.T, locks *journal.Locks, wg *sync.WaitGroup) {
	t.Helper()
	for i := range 4 {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			for ctx.Err() == nil {
				release, err := locks.Acquire(ctx, journal.Lock{Name: "pf", Shared: true, Kept: true})
				if err != nil {
					return
				}
				time.Sleep(400 * time.Millisecond)
				release()
			}
		})
	}
}

// TestLockAloneAmongSharers: a caller that wants a lock alone gets it when those that share it now have finished, although
// others ask to share it without a pause, in this process or another.
func TestLockAloneAmongSharers(t *testing.T) {
	for name, sharers := range map[string]int{"one process": 0, "two processes": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := instances(t)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				shareInTurns(ctx, t, []*journal.Locks{a, b}[sharers], &wg)
				time.Sleep(time.Second)
				for range 3 {
					start := time.Now()
					wait, stop := context.WithTimeout(ctx, 10*time.Second)
					release, err := a.Acquire(wait, group("pf"))
					stop()
					if err != nil {
						t.Error(err)
						break
					}
					if took := time.Since(start); took > 600*time.Millisecond {
						t.Errorf("it waited for %s; those that share the lock have it for 400 ms", took)
					}
					release()
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

// TestTurnIsBounded: an owner that hangs in the kernel shares a lock for ever. A waiter that wants the lock alone keeps others
// from sharing it for a while only.
func TestTurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := instances(t)
		hung, err := a.Acquire(t.Context(), shared("pf"))
		if err != nil {
			t.Fatal(err)
		}
		defer hung()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		alone := make(chan error)
		go func() {
			_, err := a.Acquire(ctx, group("pf"))
			alone <- err
		}()
		time.Sleep(time.Second)
		start := time.Now()
		release, err := b.Acquire(t.Context(), shared("pf"))
		if err != nil {
			t.Fatal(err)
		}
		release()
		if took := time.Since(start); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("another caller shares the lock after %s; want it after the turn of 40 s", took)
		}
		if err := <-alone; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v; want it out of time", err)
		}
	})
}

// TestTurnLeavesNothing: the announcement ends with the wait, and that of a killed process stops nobody.
func TestTurnLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	locks, err := journal.NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	release, err := locks.Acquire(t.Context(), shared("pf"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := locks.Acquire(ctx, group("pf")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire = %v; want it out of time", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.next.lock")); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
	release()
	if err := os.WriteFile(filepath.Join(dir, "pf.next.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []journal.Lock{shared("pf"), group("pf")} {
		release, err := locks.Acquire(t.Context(), lock)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
}
