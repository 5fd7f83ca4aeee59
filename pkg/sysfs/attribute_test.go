package sysfs

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestReadAttribute: an attribute whose function is locked is given up on, and others are read as any file.
func TestReadAttribute(t *testing.T) {
	fs, lock := lockedFunction(t, "uevent", map[string]string{"vendor": "0x10de\n"})
	dir := FunctionPath(lockedAddress())
	fs.locked.wait = time.Millisecond
	if data, locked, err := fs.ReadAttribute(dir+"/uevent", 1<<10); !locked || !errors.Is(err, ErrLocked) {
		t.Errorf("uevent: %q, %t, %v; want ErrLocked", data, locked, err)
	}
	if data, locked, err := fs.ReadAttribute(dir+"/vendor", 4); locked || err != nil || string(data) != "0x10" {
		t.Errorf("vendor: %q, %t, %v", data, locked, err)
	}
	if data, locked, err := fs.ReadAttribute(dir+"/vpd", 1<<10); locked || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("vpd: %q, %t, %v; want that it does not exist", data, locked, err)
	}
	if _, err := lock.WriteString("DRIVER=nvidia\n"); err != nil {
		t.Fatal(err)
	}
	for fs.locked.hangs(lockedAttribute{lockedAddress(), "uevent"}) { // until the test's own time limit
		runtime.Gosched()
	}
}
