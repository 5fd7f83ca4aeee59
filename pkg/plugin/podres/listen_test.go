package podres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

func TestListenMakesASocketForOurUserAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "run", "s.sock")
	l, err := podres.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %s, want %s", path, info.Mode(), want)
		}
	}
}

func TestListenRefusesWhatMayBeAnothersSocket(t *testing.T) {
	type refusal struct {
		place func(t *testing.T, dir, path string)
		say   string
	}
	cases := map[string]refusal{
		"a directory that a group can write to": {
			place: func(t *testing.T, dir, _ string) { mustDo(t, os.Chmod(dir, 0o770)) }, say: "writable by others",
		},
		"a directory that all can write to": {
			place: func(t *testing.T, dir, _ string) { mustDo(t, os.Chmod(dir, 0o777|os.ModeSticky)) }, say: "writable by others",
		},
		"a directory that is a link": {
			place: func(t *testing.T, dir, _ string) {
				mustDo(t, os.Rename(dir, dir+".real"))
				mustDo(t, os.Symlink(dir+".real", dir))
			},
			say: "not a directory",
		},
		"a file": {
			place: func(t *testing.T, _, path string) { writeFile(t, path, "x") }, say: "not a socket",
		},
		"a link to a socket": {
			place: func(t *testing.T, dir, path string) {
				other, err := net.Listen("unix", filepath.Join(dir, "other"))
				mustDo(t, err)
				t.Cleanup(func() { _ = other.Close() })
				mustDo(t, os.Symlink("other", path))
			},
			say: "not a socket",
		},
		"a directory in its place": {
			place: func(t *testing.T, _, path string) { mustDo(t, os.Mkdir(path, 0o700)) }, say: "not a socket",
		},
	}
	if os.Geteuid() == 0 { // who else can give files away?
		cases["another user's directory"] = refusal{
			place: func(t *testing.T, dir, _ string) { mustDo(t, os.Chown(dir, 65534, 65534)) }, say: "not owned by user 0",
		}
		cases["another user's socket"] = refusal{
			place: func(t *testing.T, _, path string) {
				l, err := net.Listen("unix", path)
				mustDo(t, err)
				t.Cleanup(func() { _ = l.Close() })
				mustDo(t, os.Chown(path, 65534, 65534))
			},
			say: "not owned by user 0",
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(socketDir(t), "run")
			path := filepath.Join(dir, "s.sock")
			mustDo(t, os.Mkdir(dir, 0o700))
			c.place(t, dir, path)
			before := entries(t, dir)
			l, err := podres.Listen(t.Context(), path)
			if err == nil {
				_ = l.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), path) {
				t.Errorf("Listen = %v; want an error that names the path and says %q", err, c.say)
			}
			after := entries(t, dir)
			delete(after, "s.sock.lock")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the directory has changed (-before +after):\n%s", diff)
			}
		})
	}
}

// entries returns the modes of what is in a directory.
func entries(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]string{}
	for _, e := range list {
		modes[e.Name()] = e.Type().String()
	}
	return modes
}

// A missing file is leave for Kata to plug what annotations say.
func TestSocketStaysAndRefusesWhenTheLastServerHasStopped(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	i := w.start(w.config())
	if _, err := w.get(); err != nil {
		t.Fatal(err)
	}
	i.end(t)
	if conn, err := net.Dial("unix", w.socket()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial = %v, %v; want it refused", conn, err)
	}
	info, err := os.Lstat(w.socket())
	if err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("what is left: %v, %v; want the socket", info, err)
	}
}

// A killed instance leaves its socket and perhaps one it had not renamed yet.
func TestListenTakesOverFromAKilledInstance(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	mustDo(t, os.Mkdir(filepath.Dir(w.socket()), 0o700))
	for _, path := range []string{w.socket(), w.socket() + ".new"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		mustDo(t, err)
		l.SetUnlinkOnClose(false)
		mustDo(t, l.Close())
	}
	w.start(w.config())
	if _, err := w.get(); err != nil {
		t.Error(err)
	}
	want := map[string]string{"pod-resources.sock": "S---------", "pod-resources.sock.lock": "----------"}
	if diff := cmp.Diff(want, entries(t, filepath.Dir(w.socket()))); diff != "" {
		t.Errorf("what is there (-want +got):\n%s", diff)
	}
}

// The temporary name may be another instance's by the time of the end.
func TestEndedInstanceLeavesTheNextOnesSocketAlone(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	l, err := podres.Listen(t.Context(), path)
	mustDo(t, err)
	writeFile(t, path+".new", "")
	mustDo(t, l.Close())
	if _, err := os.Lstat(path + ".new"); err != nil {
		t.Error(err)
	}
}

func TestListenWaitsForAnotherListenNoLongerThanItsContext(t *testing.T) {
	path := filepath.Join(socketDir(t), "s.sock")
	locks, err := journal.NewLocks(filepath.Dir(path))
	mustDo(t, err)
	release, err := locks.Acquire(t.Context(), journal.Lock{Name: "s.sock"})
	mustDo(t, err)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if l, err := podres.Listen(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Listen = %v, %v; want the deadline", l, err)
	}
}

// caller asks again and again, each time on a new connection, as shims do.
type caller struct {
	asked atomic.Int32
	err   atomic.Pointer[error]
}

func (c *caller) run(ctx context.Context, w *world) {
	for ctx.Err() == nil {
		answer, err := w.get()
		if err == nil && len(plugged(answer)) != 1 {
			err = fmt.Errorf("answer: %v", plugged(answer))
		}
		if err != nil {
			c.err.Store(&err)
			return
		}
		c.asked.Add(1)
	}
}

// more waits for n further answers: the connections of before are done with.
func (c *caller) more(t *testing.T, n int32) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for goal := c.asked.Load() + n; c.asked.Load() < goal; {
		if err := c.err.Load(); err != nil {
			t.Fatalf("a call failed: %v", *err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer for 30 s")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestListenFailsNoCallWhileInstancesAlternate(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	running := w.start(w.config())
	ctx, cancel := context.WithCancel(t.Context())
	callers := make([]caller, 4)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { callers[i].run(ctx, w) })
	}
	defer wg.Wait()
	defer cancel()
	for range 5 {
		next := w.start(w.config())
		for i := range callers {
			callers[i].more(t, 2) // the second call began after the takeover
		}
		running.end(t)
		running = next
	}
	for i := range callers {
		callers[i].more(t, 2)
	}
}

func TestCallInProgressOutlivesTheTakeover(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	w.startKubelet()
	w.claims.wait = make(chan struct{})
	asked := make(chan struct{}, 1)
	w.kubelet.before = func(context.Context) error { asked <- struct{}{}; return nil }
	first := w.start(w.config())
	result := make(chan error, 1)
	go func() {
		_, err := w.get()
		result <- err
	}()
	<-asked
	w.start(w.config())
	first.stop()
	select {
	case err := <-first.done:
		t.Fatalf("the first instance ended (%v) with a call in progress", err)
	case err := <-result:
		t.Fatalf("the call ended early: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(w.claims.wait)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestCallThatDoesNotEndIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p1", gpu))
	w.startKubelet()
	w.claims.wait = make(chan struct{})
	asked := make(chan struct{}, 1)
	w.kubelet.before = func(context.Context) error { asked <- struct{}{}; return nil }
	cfg := w.config()
	cfg.StopLimit = 20 * time.Millisecond
	i := w.start(cfg)
	result := make(chan error, 1)
	go func() {
		_, err := w.get()
		result <- err
	}()
	<-asked
	i.end(t)
	if err := <-result; err == nil {
		t.Error("the call had an answer; want an error")
	}
}
