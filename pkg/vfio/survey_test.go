package vfio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// On a live node the number of an open node decides, and a mapped file that is
// only called like a resource file is none. This process is the one looked at.
func TestSurveyOfALiveProcess(t *testing.T) {
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	s := &survey{patience: maxPatience, search: &search{
		fs: fs, live: true, limit: maxDescriptors, names: map[string]bool{"/dev/vfio/15": true},
		numbers: map[number]string{{kind: unix.S_IFCHR, major: 1, minor: 3}: "/dev/vfio/15"}, // that of /dev/null
	}}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	mapFile(t, filepath.Join(t.TempDir(), "ffff:ff:1f.7", "resource0"))
	u, err := s.process(t.Context(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u.Nodes, []string{"/dev/vfio/15"}) || len(u.Registers) > 0 || u.VM {
		t.Errorf("this process has %+v, want the node alone", u)
	}
	if u.PID != os.Getpid() || u.Parent != os.Getppid() || u.UID != os.Geteuid() || len(u.Arguments) != len(os.Args) {
		t.Errorf("it is introduced as %+v", u.Process)
	}
	s.search.live = false
	if u, err := s.process(t.Context(), os.Getpid()); err != nil || len(u.Registers) != 1 {
		t.Errorf("in a copy the name counts: %+v, %v", u, err)
	}
}

// TestPatienceIsForProcessesThatKeepOneWaiting: not for how many there are.
func TestPatienceIsForProcessesThatKeepOneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := maxPatience
		read := func(takes time.Duration) error {
			return p.wait(t.Context(), func(ctx context.Context) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		}
		for range 1000 {
			if err := read(atOnce / 2); err != nil {
				t.Fatalf("one that is read at once: %v, with %v of patience left", err, time.Duration(p))
			}
		}
		if err := read(maxWait); err != nil {
			t.Errorf("one that takes its time: %v", err)
		}
		for p > 0 {
			begin := time.Now()
			if err := read(time.Hour); !errors.Is(err, errSlow) || time.Since(begin) > maxWait+atOnce {
				t.Fatalf("a map that can't be read: %v after %v", err, time.Since(begin))
			}
		}
		if err := read(2 * atOnce); !errors.Is(err, errSlow) {
			t.Errorf("with no patience left, one that takes its time: %v", err)
		}
		if err := read(atOnce / 2); err != nil {
			t.Errorf("after that, one that is read at once: %v", err)
		}
	})
}

// TestMapsOfThreads: a process whose first thread has ended shows its map with the others only.
func TestMapsOfThreads(t *testing.T) {
	const mapping = "7f0000000000-7f0000001000 rw-s 00000000 00:16 99 /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/resource0\n"
	root := t.TempDir()
	for name, text := range map[string]string{
		"20/maps": "", "20/task/20/maps": "", "20/task/21/maps": "", "20/task/22/maps": mapping,
		"30/maps": "", "30/task/30/maps": "",
	} {
		file := filepath.Join(root, "proc", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	s := &survey{patience: maxPatience, search: &search{fs: fs}}
	for proc, want := range map[string]string{"proc/20": "[0000:3b:00.0]", "proc/30": "[]"} {
		if got, err := s.mapped(t.Context(), proc); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, %v; want %s", proc, got, err, want)
		}
	}
}

// TestKernelThreadsHaveNoMap: one whose empty map was read too late hides nothing. Of anything else, nobody knows.
func TestKernelThreadsHaveNoMap(t *testing.T) {
	root := t.TempDir()
	for pid, stat := range map[string]string{
		"10": "10 (kworker/0:0H-events_highpri) I 2 0 0 0 -1 69238880 0 0", "11": "11 (kworker/0:1) S 1 11 11 0 -1 4194560 1 1", "12": "cut off",
	} {
		if err := os.MkdirAll(filepath.Join(root, "proc", pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc", pid, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	s := &survey{search: &search{fs: fs}}
	for proc, want := range map[string]bool{"proc/10": true, "proc/11": false, "proc/12": false, "proc/13": false} {
		if got := s.isKernelThread(proc); got != want {
			t.Errorf("%s: got %t, want %t", proc, got, want)
		}
	}
}

// mapFile maps a new file for the time of the test.
func mapFile(t *testing.T, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Munmap(mapped), file.Close() })
}

func FuzzParseMapping(f *testing.F) {
	f.Add("7f00-7f10 rw-s 0 00:15 4711 /sys/devices/pci0000:3a/0000:3b:00.1/resource2\n")
	f.Add("7f00-7f10 rw-s 0 00:15 x /0000:3b:00.1/resource")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMapping(line); ok && m.function.String() == "" {
			t.Error(fmt.Sprint(m))
		}
	})
}
