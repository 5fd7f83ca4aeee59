package sanitizer

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMakeWritable makes a mount writable that is read-only, in a mount namespace of its own. The thread stays locked and
// ends with the test.
func TestMakeWritable(t *testing.T) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatalf("new mount namespace: %v", err)
	}
	dir := t.TempDir()
	for _, m := range []struct {
		source, target string
		flags          uintptr
	}{
		{"", "/", unix.MS_REC | unix.MS_PRIVATE},
		{dir, dir, unix.MS_BIND},
		{"", dir, unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY},
	} {
		if err := unix.Mount(m.source, m.target, "", m.flags, ""); err != nil {
			t.Fatalf("mount %s: %v", m.target, err)
		}
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	file := filepath.Join(dir, "enable")
	if err := os.WriteFile(file, nil, 0o600); err == nil {
		t.Fatal("the mount is not read-only")
	}
	for range 2 { // the second has nothing to do
		if err := MakeWritable(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Errorf("the mount is still read-only: %v", err)
	}
	if err := MakeWritable(dir + "/none"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("got %v, want an error about the directory", err)
	}
}
