package control_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// tree makes a directory with one attribute in it, and a file beside it.
func tree(t *testing.T) (root, outside string) {
	t.Helper()
	dir := t.TempDir()
	root, outside = filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	if err := os.MkdirAll(filepath.Join(root, "sys/devices/pci0000:3a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(root, "sys/devices/pci0000:3a/reset"), outside} {
		if err := os.WriteFile(name, []byte("........"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"sys/link":   "devices/pci0000:3a",
		"sys/escape": "../../outside",
		"sys/abs":    outside,
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

func newWriter(t *testing.T, root string) *control.RootWriter {
	t.Helper()
	w, err := control.NewWriter(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestRootWriterWritesWithoutTruncating(t *testing.T) {
	root, _ := tree(t)
	w := newWriter(t, root)
	for _, name := range []string{"sys/devices/pci0000:3a/reset", "sys/link/reset"} {
		if err := w.Write(name, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(root, "sys/link/reset"))
	if err != nil || string(got) != "1......." {
		t.Errorf("got %q, %v; want the attribute overwritten in place", got, err)
	}
}

func TestRootWriterCreatesNothing(t *testing.T) {
	root, _ := tree(t)
	err := newWriter(t, root).Write("sys/link/absent", []byte("1"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want ENOENT", err)
	}
	if _, err := os.Stat(filepath.Join(root, "sys/link/absent")); err == nil {
		t.Error("the file was created")
	}
}

func TestRootWriterStaysBelowItsRoot(t *testing.T) {
	root, outside := tree(t)
	w := newWriter(t, root)
	for _, name := range []string{"../outside", "sys/escape", "sys/abs", outside, "sys/link/../../../outside"} {
		if err := w.Write(name, []byte("x")); err == nil {
			t.Errorf("wrote to %s", name)
		}
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "........" {
		t.Errorf("the file outside now has %q, %v", got, err)
	}
}

// /dev/full answers every write with ENOSPC, as an attribute answers with its
// store function's error.
func TestRootWriterReturnsTheKernelsAnswer(t *testing.T) {
	err := newWriter(t, "/dev").Write("full", []byte("1"))
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
}

// A full pipe answers EAGAIN to a writer that does not wait. So does an
// attribute whose driver defers its probe: the answer has to come back, and
// not to park the goroutine until the file is writable.
func TestRootWriterReturnsEAGAIN(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	w := newWriter(t, dir)
	page := make([]byte, 4096)
	for range 1 << 10 {
		if err = w.Write("fifo", page); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("error %v, want EAGAIN", err)
	}
}

func TestNewWriterWantsADirectory(t *testing.T) {
	if _, err := control.NewWriter(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want ENOENT", err)
	}
}
