package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// instances returns two users of one lock directory, as two plugin processes
// are: flock belongs to the open file, so that one process will do.
func instances(t *testing.T) (a, b *journal.Locks) {
	t.Helper()
	dir := t.TempDir()
	a, err := journal.NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err = journal.NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func group(name string) journal.Lock  { return journal.Lock{Name: name} }
func shared(name string) journal.Lock { return journal.Lock{Name: name, Shared: true} }

func TestLocksExclude(t *testing.T) {
	tests := map[string]struct {
		first, second []journal.Lock
		excludes      bool
	}{
		"same":                {[]journal.Lock{group("g1")}, []journal.Lock{group("g1")}, true},
		"different":           {[]journal.Lock{group("g1")}, []journal.Lock{group("g2")}, false},
		"overlapping":         {[]journal.Lock{group("g1"), group("g2")}, []journal.Lock{group("g3"), group("g2")}, true},
		"shared":              {[]journal.Lock{shared("pf")}, []journal.Lock{shared("pf")}, false},
		"shared, then alone":  {[]journal.Lock{shared("pf")}, []journal.Lock{group("pf")}, true},
		"alone, then shared":  {[]journal.Lock{group("pf")}, []journal.Lock{shared("pf")}, true},
		"alone wins the name": {[]journal.Lock{shared("pf"), group("pf")}, []journal.Lock{shared("pf")}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := instances(t)
			release, err := a.Acquire(t.Context(), tt.first...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			again, err := b.Acquire(ctx, tt.second...)
			if got := err != nil; got != tt.excludes {
				t.Fatalf("second Acquire = %v; want excluded: %t", err, tt.excludes)
			}
			if tt.excludes && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("second Acquire = %v; want the context's error in it", err)
			}
			release()
			if again != nil {
				again()
			}
			again, err = b.Acquire(t.Context(), tt.second...)
			if err != nil {
				t.Fatalf("Acquire after release: %v", err)
			}
			again()
		})
	}
}

// TestAbandonedLockIsLetGo checks that a waiter that gave up does not take
// the lock later and keep it.
func TestAbandonedLockIsLetGo(t *testing.T) {
	a, b := instances(t)
	release, err := a.Acquire(t.Context(), group("g"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, group("g"))
		gaveUp <- err
	}()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire = %v; want it canceled", err)
	}
	release()
	again, err := a.Acquire(t.Context(), group("g"))
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestCrossedLocksDoNotDeadlock takes two locks in opposite orders from many
// goroutines and checks that never two are inside.
func TestCrossedLocksDoNotDeadlock(t *testing.T) {
	a, b := instances(t)
	var inside atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		locks := []journal.Lock{group("g1"), group("g2")}
		who := a
		if i%2 == 1 {
			locks[0], locks[1], who = locks[1], locks[0], b
		}
		wg.Go(func() {
			release, err := who.Acquire(t.Context(), locks...)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d are inside", n)
			}
			inside.Add(-1)
			release()
			release() // twice is as good as once
		})
	}
	wg.Wait()
}

func transient(name string) journal.Lock { return journal.Lock{Name: name, Transient: true} }

// count returns how many entries a directory has.
func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestAbandonedWaitsLeaveNothing: waiters that gave up keep neither a thread nor a
// descriptor, however long the lock is held.
func TestAbandonedWaitsLeaveNothing(t *testing.T) {
	a, b := instances(t)
	release, err := a.Acquire(t.Context(), group("g"))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	threads, descriptors := count(t, "/proc/self/task"), count(t, "/proc/self/fd")
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := b.Acquire(ctx, group("g")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire = %v; want it out of time", err)
			}
		})
	}
	wg.Wait()
	if more := count(t, "/proc/self/task") - threads; more > 20 {
		t.Errorf("100 abandoned waits keep %d threads", more)
	}
	if more := count(t, "/proc/self/fd") - descriptors; more > 5 {
		t.Errorf("100 abandoned waits keep %d descriptors", more)
	}
}

// TestTransientLocksLeaveNoFile takes and releases many locks in two instances,
// each name by several at once, and checks that never two have one.
func TestTransientLocksLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var inside [8]atomic.Int32
	for range 4 {
		locks, err := journal.NewLocks(dir)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 200 {
			wg.Go(func() {
				release, err := locks.Acquire(t.Context(), transient(fmt.Sprintf("claim-%d", n%len(inside))))
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside[n%len(inside)].Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				inside[n%len(inside)].Add(-1)
				release()
			})
		}
	}
	wg.Wait()
	if n := count(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// TestSweepRemovesFilesOfNobody: a killed process left them.
func TestSweepRemovesFilesOfNobody(t *testing.T) {
	dir := t.TempDir()
	locks, err := journal.NewLocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claim-a.lock", "claim-b.lock", "group-1.lock", "claim-notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release, err := locks.Acquire(t.Context(), transient("claim-b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Sweep("claim-"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"claim-a.lock": false, "claim-b.lock": true, "group-1.lock": true, "claim-notes": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %t", name, err, want)
		}
	}
	release()
}

func kept(name string) journal.Lock { return journal.Lock{Name: name, Kept: true} }

// TestKeptLocksExclude takes and releases one kept lock by many in two instances, and checks that never two have it, and
// that one descriptor for each instance is left at most.
func TestKeptLocksExclude(t *testing.T) {
	a, b := instances(t)
	descriptors := count(t, "/proc/self/fd")
	var wg sync.WaitGroup
	var inside atomic.Int32
	for n := range 400 {
		wg.Go(func() {
			release, err := []*journal.Locks{a, b}[n%2].Acquire(t.Context(), kept("append"))
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d are inside", n)
			}
			inside.Add(-1)
			release()
		})
	}
	wg.Wait()
	if more := count(t, "/proc/self/fd") - descriptors; more > 2 {
		t.Errorf("two instances keep %d descriptors", more)
	}
}

// TestKeptLockFollowsItsName removes the file of a free lock that an instance keeps open: the next two to take the lock
// must still exclude each other.
func TestKeptLockFollowsItsName(t *testing.T) {
	dir := t.TempDir()
	var instances [2]*journal.Locks
	for i := range instances {
		locks, err := journal.NewLocks(dir)
		if err != nil {
			t.Fatal(err)
		}
		instances[i] = locks
	}
	release, err := instances[0].Acquire(t.Context(), kept("append"))
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := os.Remove(filepath.Join(dir, "append.lock")); err != nil {
		t.Fatal(err)
	}
	if release, err = instances[1].Acquire(t.Context(), kept("append")); err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := instances[0].Acquire(ctx, kept("append")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire = %v; want it out of time", err)
	}
}

// TestLockNamesItsHolder: only a claim's own lock is transient, and another claim can't have it.
func TestLockNamesItsHolder(t *testing.T) {
	for says, lock := range map[string]journal.Lock{
		"claim-1.lock is held by another call for the same claim": {Name: "claim-1", Transient: true},
		"g1.lock is held by another claim's work":                 group("g1"),
		"pf.lock is held by another claim's work":                 shared("pf"),
	} {
		a, b := instances(t)
		release, err := a.Acquire(t.Context(), journal.Lock{Name: lock.Name, Transient: lock.Transient})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if _, err := b.Acquire(ctx, lock); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Acquire = %v; want in it %q", err, says)
		}
		cancel()
		release()
	}
}
