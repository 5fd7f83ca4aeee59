package nri

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// longEnough is not a limit for what a test finds.
const longEnough = 20 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rootWithNodes is a root with a device node of each kind, and files of all others.
func rootWithNodes(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"dev", "volume/data", "etc"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, unix.Mknod(filepath.Join(root, "dev/disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(253, 7))))
	must(t, unix.Mknod(filepath.Join(root, "dev/zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	must(t, os.WriteFile(filepath.Join(root, "volume/file"), nil, 0o600))
	must(t, unix.Mkfifo(filepath.Join(root, "volume/fifo"), 0o600))
	t.Chdir(root) // the name of a socket is short
	l, err := net.Listen("unix", "volume/socket")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, to := range map[string]string{
		"volume/absolute": "/dev/disk", "volume/relative": "../dev/zero", "volume/out": "../../../../../../dev/disk",
		"volume/to-file": "file", "linked": "volume/absolute", "devices": "/dev", "volume/nowhere": "/none", "volume/loop": "loop",
	} {
		must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	return root
}

func TestDevices(t *testing.T) {
	disk, zero := &DeviceNode{Block: true, Major: 253, Minor: 7}, &DeviceNode{Major: 1, Minor: 5}
	f := NewSourceFinder(rootWithNodes(t), longEnough)
	for path, want := range map[string]*DeviceNode{
		"/dev/disk": disk, "/dev/zero": zero, "//dev/./disk": disk,
		"/volume/absolute": disk, "/volume/relative": zero, "/linked": disk, "/devices/disk": disk,
		"/volume/out": disk, "/../../dev/disk": disk, // no way out of the root
		"/": nil, "/dev": nil, "/volume/file": nil, "/volume/fifo": nil, "/volume/socket": nil, "/volume/to-file": nil, "/volume/data": nil,
	} {
		got, err := f.Devices("tenant", []string{path})
		wanted := map[string]DeviceNode{}
		if want != nil {
			wanted[path] = *want
		}
		if diff := cmp.Diff(wanted, got); err != nil || diff != "" {
			t.Errorf("Devices of %s: %v (-want +got):\n%s", path, err, diff)
		}
	}
	all, err := f.Devices("tenant", []string{"/volume/data", "/dev/disk", "/etc", "/volume/relative"})
	if diff := cmp.Diff(map[string]DeviceNode{"/dev/disk": *disk, "/volume/relative": *zero}, all); err != nil || diff != "" {
		t.Errorf("Devices of four: %v (-want +got):\n%s", err, diff)
	}
}

func TestPathsThatLeadNowhereAreErrors(t *testing.T) {
	f := NewSourceFinder(rootWithNodes(t), longEnough)
	for path, want := range map[string]error{
		"/none": fs.ErrNotExist, "/volume/nowhere": fs.ErrNotExist, "/volume/loop": unix.ELOOP, "/volume/file/x": unix.ENOTDIR,
	} {
		got, err := f.Devices("tenant", []string{"/etc", path})
		at, ok := errors.AsType[*fs.PathError](err)
		if !errors.Is(err, want) || !ok || at.Path != path {
			t.Errorf("Devices of %s = %v, %v, want %v of this path", path, got, err, want)
		}
	}
	// What a process has open has no path on the node.
	file, err := os.Open("/dev/null")
	must(t, err)
	defer file.Close()
	open := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
	if got, err := NewSourceFinder("/", longEnough).Devices("tenant", []string{open}); !errors.Is(err, unix.EXDEV) {
		t.Errorf("Devices of %s = %v, %v, want %v", open, got, err, unix.EXDEV)
	}
	if got, err := NewSourceFinder(filepath.Join(t.TempDir(), "none"), longEnough).Devices("tenant", []string{"/etc"}); err == nil {
		t.Errorf("Devices without a root = %v", got)
	}
}

// TestFileSystemThatHangs: neither the caller nor another tenant waits for it.
func TestFileSystemThatHangs(t *testing.T) {
	// Long enough for a busy machine to come to the path that hangs.
	f := NewSourceFinder(rootWithNodes(t), 250*time.Millisecond)
	answers := make(chan struct{})
	f.look = func(root int, path string) (DeviceNode, bool, error) {
		if path == "/hangs" {
			<-answers
		}
		return DeviceNode{}, false, nil
	}
	for range ofTenant {
		_, err := f.Devices("tenant", []string{"/etc", "/hangs", "/dev"})
		if at, ok := errors.AsType[*fs.PathError](err); !errors.Is(err, os.ErrDeadlineExceeded) || !ok || at.Path != "/hangs" {
			t.Fatalf("Devices of a file system that hangs = %v, want the limit at its path", err)
		}
	}
	f.limit = longEnough
	if _, err := f.Devices("tenant", []string{"/hangs"}); !errors.Is(err, ErrBusy) {
		t.Errorf("Devices after %d that hang = %v, want %v", ofTenant, err, ErrBusy)
	}
	if _, err := f.Devices("other", []string{"/etc"}); err != nil {
		t.Errorf("Devices of another tenant = %v", err)
	}
	close(answers)
	if _, err := eventually(f, "tenant"); err != nil {
		t.Errorf("Devices after the file system answered = %v", err)
	}
}

// eventually asks until the look-ups that hung have ended.
func eventually(f *SourceFinder, tenant string) (found map[string]DeviceNode, err error) {
	for deadline := time.Now().Add(longEnough); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if found, err = f.Devices(tenant, []string{"/etc"}); !errors.Is(err, ErrBusy) {
			break
		}
	}
	return found, err
}

func TestAllTenantsTogetherAreBounded(t *testing.T) {
	s := slots{used: map[string]int{}}
	for i := range ofAll {
		if !s.take(string(rune('a' + i%200))) {
			t.Fatalf("no look-up after %d of %d", i, ofAll)
		}
	}
	if s.take("another") {
		t.Errorf("look-up %d may begin", ofAll+1)
	}
	s.give("a")
	if !s.take("another") {
		t.Error("none may begin after one has ended")
	}
}
