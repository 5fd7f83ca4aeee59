package sysfs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestInterfacesShareALock: while a read of one interface's attribute hangs, those of others are not read, and attributes
// without that lock are.
func TestInterfacesShareALock(t *testing.T) {
	fs, lock := lockedFunction(t, "speed", map[string]string{"duplex": "full\n", "mtu": "1500\n"})
	dir := FunctionPath(lockedAddress())
	fs.locked.wait = time.Millisecond
	if text, err := fs.InterfaceText(dir + "/speed"); !errors.Is(err, ErrLocked) {
		t.Errorf("speed: %q, %v; want ErrLocked", text, err)
	}
	fs.locked.wait = time.Hour
	d, err := fs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if text, _, err := d.InterfaceText("duplex"); !errors.Is(err, ErrLocked) {
		t.Errorf("duplex meanwhile: %q, %v; want ErrLocked at once", text, err)
	}
	if text, _, err := d.Text("mtu"); err != nil || text != "1500" {
		t.Errorf("mtu meanwhile: %q, %v", text, err)
	}
	if _, err := lock.WriteString("25000\n"); err != nil {
		t.Fatal(err)
	}
	for fs.locked.hangs(rtnl()) { // until the test's own time limit
		runtime.Gosched()
	}
	if text, ok, err := d.InterfaceText("duplex"); err != nil || !ok || text != "full" {
		t.Errorf("duplex then: %q, %t, %v", text, ok, err)
	}
	if text, err := fs.InterfaceText(dir + "/speed2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %q, %v; want that it does not exist", filepath.Join(dir, "speed2"), text, err)
	}
}
