package vfio

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets this program be the process that is looked at.
func TestMain(m *testing.M) {
	if how := os.Getenv("HOSTILE"); how != "" {
		be(how)
	}
	os.Exit(m.Run())
}

// hostile are things that any process can do to its files, by name. Each process has /dev/full open, which stands for
// the node that is looked for.
func hostile() map[string]func(dir string) {
	return map[string]func(dir string){
		"a path that is too long":          func(dir string) { openFull(); openDeep(dir) },
		"a working directory that is too":  func(dir string) { openFull(); must(unix.Fchdir(deep(dir))) },
		"a name with newlines":             func(dir string) { openFull(); create(dir + "/a\n15\n") },
		"a name that says deleted":         func(dir string) { openFull(); create(dir + "/15 (deleted)") },
		"a removed file":                   func(dir string) { openFull(); create(dir + "/x"); must(os.Remove(dir + "/x")) },
		"a process name with a bracket":    func(string) { openFull(); must(os.WriteFile("/proc/self/comm", []byte("x) Z\n 1"), 0)) },
		"many files":                       func(string) { openFull(); dup(5000) },
		"a thread with a table of its own": func(string) { openApart() },
		"a first thread that has ended":    func(string) { openFull(); endFirstThread() },
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// be does what is named, says so, and waits until its parent ends it.
func be(how string) {
	done := make(chan bool)
	go func() { // not on the first thread, which may have to end
		if do, ok := hostile()[how]; ok {
			do(os.Getenv("HOSTILE_DIR"))
		} else {
			send()
		}
		must(os.WriteFile(os.Getenv("HOSTILE_READY"), nil, 0o600))
		time.Sleep(time.Hour)
	}()
	<-done
}

// openFull opens the node.
func openFull() int {
	fd, err := unix.Open(cmp.Or(os.Getenv("HOSTILE_NODE"), "/dev/full"), unix.O_RDWR, 0)
	must(err)
	return fd
}

// send leaves the descriptor of the node in flight in a socket, where proc does not show it.
func send() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	must(err)
	fd := openFull()
	must(unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0))
	must(unix.Close(fd))
}

func create(name string) {
	_, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600)
	must(err)
}

func dup(n int) {
	limit := unix.Rlimit{Cur: uint64(n + 100), Max: uint64(n + 100)}
	must(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	for range n {
		_, err := unix.Dup(0)
		must(err)
	}
}

// deep makes and opens a directory whose path is longer than the kernel writes.
func deep(dir string) int {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(err)
	name := strings.Repeat("d", 200)
	for range 25 {
		if err := unix.Mkdirat(at, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			panic(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(err)
		must(unix.Close(at))
		at = next
	}
	return at
}

func openDeep(dir string) {
	_, err := unix.Openat(deep(dir), "f", unix.O_CREAT|unix.O_RDWR, 0o600)
	must(err)
}

// openApart opens the node in the table of one thread, which has left the common one.
func openApart() {
	opened := make(chan bool)
	go apart(opened)
	<-opened
}

func apart(opened chan bool) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the first thread's table is the one that everybody sees
		go apart(opened)
		select {}
	}
	must(unix.Unshare(unix.CLONE_FILES))
	openFull()
	opened <- true
	select {}
}

// endFirstThread ends the first thread of the process alone. A goroutine gets it when all others are taken.
func endFirstThread() {
	for {
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == unix.Getpid() {
				_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
			}
			select {}
		}()
		time.Sleep(time.Millisecond)
		stat, err := os.ReadFile("/proc/self/stat")
		must(err)
		if strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}

// start runs a process that does what is named in a directory of its own.
func start(t *testing.T, how string) (pid int, dir string) {
	t.Helper()
	dir = t.TempDir()
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "HOSTILE="+how, "HOSTILE_DIR="+dir, "HOSTILE_READY="+ready)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; ended <- nil })
	for {
		if _, err := os.Stat(ready); err == nil {
			return cmd.Process.Pid, dir
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("it ended early: %v", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// newFullSearch looks for /dev/full as if it were the node, and for what is not in /dev by its name.
func newFullSearch(t *testing.T, names ...string) *search {
	t.Helper()
	fs := openRoot(t)
	s := &search{
		fs: fs, live: true, comparable: canCompare(fs), limit: maxDescriptors, unnumbered: true,
		names: map[string]bool{"/dev/vfio/15": true}, numbers: map[number]string{{kind: unix.S_IFCHR, major: 1, minor: 7}: "/dev/vfio/15"},
	}
	for _, name := range names {
		s.names[name] = true
	}
	return s
}

// TestNoProcessHidesOrStopsASearch: whatever a process does to its files, it is found with the node that it has open,
// and neither the search for holders nor the survey of the audit fails.
func TestNoProcessHidesOrStopsASearch(t *testing.T) {
	for how := range hostile() {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			pid, dir := start(t, how)
			s := newFullSearch(t, dir+"/15", dir+"/a\n15", dir+"/x")
			for _, comparable := range []bool{s.comparable, false} {
				s.comparable = comparable
				s.pids = []int{pid}
				found, err := s.all(t.Context())
				if err != nil || len(found) != 1 || found[0].PID != pid || found[0].Node != "/dev/vfio/15" {
					t.Errorf("compares tables: %t: holders %v, %v; want the process with the node alone", comparable, found, err)
				}
				u, err := (&survey{search: s, patience: maxPatience}).process(t.Context(), pid)
				if err != nil || !slices.Equal(u.Nodes, []string{"/dev/vfio/15"}) {
					t.Errorf("compares tables: %t: the survey has %+v, %v; want the process with the node alone", comparable, u, err)
				}
			}
			if _, err := isShim(t.Context(), s.fs, new(maxPatience), pid, "0123"); err != nil {
				t.Errorf("whether it is a shim: %v", err)
			}
		})
	}
}

// TestOneProcessIsNamed: what can't be decided for one process says which, and the others are found.
func TestOneProcessIsNamed(t *testing.T) {
	many, _ := start(t, "many files")
	other, _ := start(t, "a removed file")
	s := newFullSearch(t)
	s.pids, s.limit = []int{other, many, 1 << 30}, 1000
	found, err := s.all(t.Context())
	unknown, ok := errors.AsType[*UninspectableError](err)
	if !ok || unknown.PID != many || unknown.Comm == "" || !errors.Is(err, errManyFiles) {
		t.Errorf("%v; want that process %d can't be inspected", err, many)
	}
	if len(found) != 1 || found[0].PID != other {
		t.Errorf("holders %v, want process %d", found, other)
	}
}

// TestLookEndsWithinAProcess: one process with many files does not hold a caller up that has left.
func TestLookEndsWithinAProcess(t *testing.T) {
	many, _ := start(t, "many files")
	s := newFullSearch(t)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	err := s.files(ctx, many, func(*openFile) error { seen++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || seen > 1024 {
		t.Errorf("%v after %d files, want an end within a thousand", err, seen)
	}
}

// TestNameOfANodeProvesNothing: a container may give a VFIO node's name to a plain file or to another device.
func TestNameOfANodeProvesNothing(t *testing.T) {
	s := &search{vfio: map[uint32]bool{511: true}}
	for name, want := range map[number]bool{
		{kind: unix.S_IFCHR, major: 511, minor: 3}: true,
		{kind: unix.S_IFCHR, major: 1, minor: 3}:   false,
		{kind: unix.S_IFBLK, major: 511, minor: 3}: false,
	} {
		if s.maybe("/dev/vfio/15", name) != want {
			t.Errorf("%+v may be a VFIO node: %t, want %t", name, !want, want)
		}
	}
	if !s.maybe("/dev/dri/card0", number{kind: unix.S_IFCHR, major: 226}) {
		t.Error("a node of another subsystem goes by its name")
	}
}
