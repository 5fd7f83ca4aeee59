package sysfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func lockedAddress() pci.Address { return pci.Address{Bus: 0x3b} }

// lockedFunction is a function, one of whose attributes can't be read: it is a FIFO. What is written to
// lock ends the read. Others can, and hold their text.
func lockedFunction(t *testing.T, attribute string, others map[string]string) (fs *FS, lock *os.File) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, FunctionPath(lockedAddress()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, attribute)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if fs, err = Open(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs, lock
}

// A FIFO that is open for writing reads like driver_override while the device
// lock is held: not at all, until somebody lets go.
func TestLockedAttribute(t *testing.T) {
	fs, lock := lockedFunction(t, "driver_override", nil)

	fs.locked.wait = time.Millisecond
	if text, err := fs.DriverOverride(lockedAddress()); !errors.Is(err, ErrLocked) {
		t.Fatalf("while locked: %q, %v; want ErrLocked", text, err)
	}
	// A second read would never return; that there is none is seen by its answer
	// coming without the wait.
	fs.locked.wait = time.Hour
	if text, err := fs.DriverOverride(lockedAddress()); !errors.Is(err, ErrLocked) {
		t.Fatalf("still locked: %q, %v; want ErrLocked at once", text, err)
	}

	if _, err := lock.WriteString("vfio-pci\n"); err != nil { // the hanging read gets this
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{lockedAddress(), "driver_override"}) { // until the test's own time limit
		runtime.Gosched()
	}
	if _, err := lock.WriteString("(null)\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := fs.DriverOverride(lockedAddress()); err != nil || text != "" {
		t.Errorf("after it was unlocked: %q, %v; want nothing set", text, err)
	}
}

// TestLockedConfigSpace: a reset that hangs keeps everybody from configuration
// space, and from nothing else.
func TestLockedConfigSpace(t *testing.T) {
	fs, lock := lockedFunction(t, "config", map[string]string{"driver_override": "vfio-pci\n"})

	fs.locked.wait = time.Millisecond
	if _, err := fs.ConfigSpace(lockedAddress()); !errors.Is(err, ErrLocked) {
		t.Errorf("configuration space: %v; want ErrLocked", err)
	}
	fs.locked.wait = time.Hour
	if _, err := fs.ConfigHead(lockedAddress(), 64); !errors.Is(err, ErrLocked) {
		t.Errorf("a second read: %v; want ErrLocked at once", err)
	}
	if text, err := fs.DriverOverride(lockedAddress()); err != nil || text != "vfio-pci" {
		t.Errorf("driver_override: %q, %v", text, err)
	}
	if _, err := lock.Write(make([]byte, 64)); err != nil { // lets the hanging read end
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{lockedAddress(), "config"}) {
		runtime.Gosched()
	}
}

// TestHangingReadKeepsItsBuffer: what such a read gets in the end is not written over what was read after it.
func TestHangingReadKeepsItsBuffer(t *testing.T) {
	fs, lock := lockedFunction(t, "config", map[string]string{"vendor": "0x8086\n"})
	d, err := fs.OpenDir(FunctionPath(lockedAddress()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	fs.locked.wait = time.Millisecond
	if _, _, _, err := d.ConfigHead(lockedAddress(), 64, nil, 0); !errors.Is(err, ErrLocked) {
		t.Fatalf("configuration space: %v; want ErrLocked", err)
	}
	vendor, ok, err := d.Bytes("vendor")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := lock.Write(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{lockedAddress(), "config"}) {
		runtime.Gosched()
	}
	if string(vendor) != "0x8086\n" {
		t.Errorf("the vendor became %q", vendor)
	}
}
