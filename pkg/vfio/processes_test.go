package vfio_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// A gated tree counts the walks through its proc. Each one waits for the gate after
// it has listed the processes.
type gated struct {
	captured
	fs    *sysfs.FS
	walks atomic.Int32
	gate  chan struct{}
}

func newGated(t *testing.T) *gated {
	g := &gated{captured: newCaptured(t), gate: make(chan struct{})}
	g.fs = open(t, g.root).WithTap(func(a sysfs.Access) {
		if a.Op == sysfs.OpList && a.Path == "proc" {
			g.walks.Add(1)
			<-g.gate
		}
	})
	return g
}

// TestCallersShareAWalk: the first caller begins a walk; the 64 that come while it is
// under way share the next one. Each learns of its own nodes alone.
func TestCallersShareAWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t)
		for n := range 64 {
			g.process(strconv.Itoa(100+n), "qemu", "/", vfio.GroupNode(n), "/dev/vfio/vfio")
		}
		p := vfio.NewProcesses(g.fs)
		var callers sync.WaitGroup
		ask := func(n int) {
			found, err := p.Find(t.Context(), []string{vfio.GroupNode(n), vfio.NoIOMMUNode(n)})
			if err != nil || len(found) != 1 || found[0].PID != 100+n || found[0].Node != vfio.GroupNode(n) {
				t.Errorf("group %d: %v, %v; want process %d alone", n, found, err, 100+n)
			}
		}
		callers.Go(func() { ask(0) })
		synctest.Wait()
		for n := range 64 {
			callers.Go(func() { ask(n) })
		}
		synctest.Wait()
		close(g.gate)
		callers.Wait()
		if n := g.walks.Load(); n != 2 {
			t.Errorf("%d walks for 65 callers, want 2", n)
		}
	})
}

// TestResultIsNotOlderThanTheQuestion: a process that opened the node before the
// question is found, though the walk that is under way does not see it.
func TestResultIsNotOlderThanTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t)
		p := vfio.NewProcesses(g.fs)
		node := []string{"/dev/vfio/15"}
		var callers sync.WaitGroup
		callers.Go(func() {
			if found, err := p.Find(t.Context(), node); err != nil || found != nil {
				t.Errorf("who asked before: %v, %v", found, err)
			}
		})
		synctest.Wait() // the processes are listed
		g.process("4711", "qemu", "/", "/dev/vfio/15")
		callers.Go(func() {
			if found, err := p.Find(t.Context(), node); err != nil || len(found) != 1 {
				t.Errorf("who asked after: %v, %v; want process 4711", found, err)
			}
		})
		synctest.Wait()
		close(g.gate)
		callers.Wait()
	})
}

// TestCallerLeavesAWalk: whose context ends goes at once. The others are served, a
// walk that nobody waits for any more ends early, and the next call has its own.
func TestCallerLeavesAWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t)
		for pid := range 1000 {
			g.process(strconv.Itoa(100+pid), "sleep", "/")
		}
		p := vfio.NewProcesses(g.fs)
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		for range 2 { // one has a walk, one waits for the next
			go func() {
				_, err := p.Find(ctx, []string{"/dev/vfio/15"})
				answers <- err
			}()
			synctest.Wait()
		}
		cancel()
		for range 2 {
			if err := <-answers; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
		}
		close(g.gate)
		synctest.Wait()
		if n := g.walks.Load(); n != 1 {
			t.Errorf("%d walks, want none for a caller that has left", n)
		}
		if found, err := p.Find(t.Context(), []string{"/dev/vfio/15"}); err != nil || found != nil {
			t.Errorf("the next call: %v, %v", found, err)
		}
	})
}

// TestHoldersAreSortedWhoeverLooks: several goroutines look into processes.
func TestHoldersAreSortedWhoeverLooks(t *testing.T) {
	c := newCaptured(t)
	for pid := range 500 {
		c.process(strconv.Itoa(100+pid), "qemu", "/", "/dev/vfio/15")
	}
	found := holders(t, open(t, c.root), "/dev/vfio/15")
	if len(found) != 500 || !slices.IsSortedFunc(found, func(a, b vfio.Holder) int { return a.PID - b.PID }) {
		t.Errorf("%d holders, want 500 by PID", len(found))
	}
}

// crowd returns a node with so many processes that have ten files open each.
func crowd(b *testing.B, processes int) *sysfs.FS {
	b.Helper()
	c := newCaptured(b)
	files := slices.Repeat([]string{"socket:[1]"}, 10)
	for pid := range processes {
		c.process(strconv.Itoa(1000+pid), "app", "/", files...)
	}
	return open(b, c.root)
}

// BenchmarkHolders looks for the holders of one node among many processes, and among few with -short.
func BenchmarkHolders(b *testing.B) {
	counts := []int{1000, 10000}
	if testing.Short() {
		counts = []int{100}
	}
	for _, processes := range counts {
		b.Run(fmt.Sprint(processes), func(b *testing.B) {
			fs := crowd(b, processes)
			for b.Loop() {
				if _, err := vfio.Holders(b.Context(), fs, []string{"/dev/vfio/15"}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*processes), "µs/process")
		})
	}
}

// BenchmarkClaims has 64 claims look at once.
func BenchmarkClaims(b *testing.B) {
	fs := crowd(b, 1000)
	p := vfio.NewProcesses(fs)
	for b.Loop() {
		var claims sync.WaitGroup
		for n := range 64 {
			claims.Go(func() {
				if _, err := p.Find(b.Context(), []string{vfio.GroupNode(n)}); err != nil {
					b.Error(err)
				}
			})
		}
		claims.Wait()
	}
}
