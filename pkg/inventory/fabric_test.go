package inventory_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// notRoots answers as the kernel does to a user who is not root: what is below /var/lib/kata-vfio is not theirs.
type notRoots struct{ *sysfs.FS }

func (notRoots) Answer(op sysfs.Op, path string) error {
	if op == sysfs.OpRead && filepath.Dir(path) == filepath.Dir(fabric.StateFile) {
		return syscall.EACCES
	}
	return nil
}

func (n notRoots) Names(path string) ([]string, error) { return n.ReadDir(path) }

// TestFabricIsReadFromItsFiles, whenever the host's facts are read again, and with the machine's name only where there is a fabric.
func TestFabricIsReadFromItsFiles(t *testing.T) {
	k := sysfstest.New(t)
	k.AddGPU(0x86)
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(k.Root(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("sys/class/dmi/id/product_name", "HGX\n")
	put("sys/module/nvidia/version", "570.172.08\n")
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	before, err := inventory.Scan(t.Context(), fs)
	if err != nil {
		t.Fatal(err)
	}
	if before.Host.Fabric != (device.FabricFacts{}) {
		t.Errorf("without a fabric: %+v", before.Host.Fabric)
	}
	put(fabric.StateFile, "{}")
	put(fabric.MapFile, "[]")
	now, err := inventory.Rescan(t.Context(), fs, before, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := device.FabricFacts{State: "{}", Modules: "[]", Product: "HGX", Driver: "570.172.08"}
	if diff := cmp.Diff(want, now.Host.Fabric); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	others, err := inventory.Scan(t.Context(), fs.WithCopy(notRoots{fs}))
	if err != nil {
		t.Fatal(err)
	}
	if others.Host.Fabric != (device.FabricFacts{}) {
		t.Errorf("to a user who is not root: %+v", others.Host.Fabric)
	}
	state := filepath.Join(k.Root(), fabric.StateFile)
	if err := errors.Join(os.Remove(state), os.Mkdir(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	unread, err := inventory.Scan(t.Context(), fs)
	if err != nil {
		t.Fatalf("a directory in place of the state fails the scan of all devices: %v", err)
	}
	if got := unread.Host.Fabric.Unread; !strings.Contains(got, filepath.Base(fabric.StateFile)) {
		t.Errorf("with a directory in place of the state: %q, want its name", got)
	}
}
