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

// A FIFO that is open for writing reads like driver_override while the device
// lock is held: not at all, until somebody lets go.
func TestLockedAttribute(t *testing.T) {
	addr := pci.Address{Bus: 0x3b}
	root := t.TempDir()
	dir := filepath.Join(root, FunctionPath(addr))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	override := filepath.Join(dir, "driver_override")
	if err := unix.Mkfifo(override, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(override, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	fs, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()

	fs.locked.wait = time.Millisecond
	if text, err := fs.DriverOverride(addr); !errors.Is(err, ErrLocked) {
		t.Fatalf("while locked: %q, %v; want ErrLocked", text, err)
	}
	// A second read would never return; that there is none is seen by its answer
	// coming without the wait.
	fs.locked.wait = time.Hour
	if text, err := fs.DriverOverride(addr); !errors.Is(err, ErrLocked) {
		t.Fatalf("still locked: %q, %v; want ErrLocked at once", text, err)
	}

	if _, err := lock.WriteString("vfio-pci\n"); err != nil { // the hanging read gets this
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{addr, "driver_override"}) { // until the test's own time limit
		runtime.Gosched()
	}
	if _, err := lock.WriteString("(null)\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := fs.DriverOverride(addr); err != nil || text != "" {
		t.Errorf("after it was unlocked: %q, %v; want nothing set", text, err)
	}
}

// TestLockedConfigSpace: a reset that hangs keeps everybody from configuration
// space, and from nothing else.
func TestLockedConfigSpace(t *testing.T) {
	addr := pci.Address{Bus: 0x3b}
	root := t.TempDir()
	dir := filepath.Join(root, FunctionPath(addr))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := unix.Mkfifo(config, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "driver_override"), []byte("vfio-pci\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(config, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()

	fs.locked.wait = time.Millisecond
	if _, err := fs.ConfigSpace(addr); !errors.Is(err, ErrLocked) {
		t.Errorf("configuration space: %v; want ErrLocked", err)
	}
	fs.locked.wait = time.Hour
	if _, err := fs.ConfigHead(addr, 64); !errors.Is(err, ErrLocked) {
		t.Errorf("a second read: %v; want ErrLocked at once", err)
	}
	if text, err := fs.DriverOverride(addr); err != nil || text != "vfio-pci" {
		t.Errorf("driver_override: %q, %v", text, err)
	}
	if _, err := lock.Write(make([]byte, 64)); err != nil { // lets the hanging read end
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{addr, "config"}) {
		runtime.Gosched()
	}
	_ = lock.Close()
}

// TestHangingReadKeepsItsBuffer: what such a read gets in the end is not written over what was read after it.
func TestHangingReadKeepsItsBuffer(t *testing.T) {
	addr := pci.Address{Bus: 0x3b}
	root := t.TempDir()
	dir := filepath.Join(root, FunctionPath(addr))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := unix.Mkfifo(config, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vendor"), []byte("0x8086\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(config, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	fs, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	d, err := fs.OpenDir(FunctionPath(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	fs.locked.wait = time.Millisecond
	if _, _, err := d.ConfigHead(addr, 64); !errors.Is(err, ErrLocked) {
		t.Fatalf("configuration space: %v; want ErrLocked", err)
	}
	vendor, ok, err := d.Bytes("vendor")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := lock.Write(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{addr, "config"}) {
		runtime.Gosched()
	}
	if string(vendor) != "0x8086\n" {
		t.Errorf("the vendor became %q", vendor)
	}
}
