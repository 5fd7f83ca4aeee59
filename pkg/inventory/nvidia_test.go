package inventory_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// unprivileged answers as the kernel does to a user who is not root: module parameters of
// mode 0400 are not theirs.
type unprivileged struct{ *sysfs.FS }

func (unprivileged) Answer(op sysfs.Op, path string) error {
	if op == sysfs.OpRead && strings.HasSuffix(path, "nvidia_drm/parameters/modeset") {
		return syscall.EACCES
	}
	return nil
}

func (u unprivileged) Names(path string) ([]string, error) { return u.ReadDir(path) }

// TestModesetIsSeenByAll: root reads the parameter, and anybody else sees what it does,
// so that both are told the same of a display GPU.
func TestModesetIsSeenByAll(t *testing.T) {
	for name, c := range map[string]struct {
		class   pci.Class
		on      bool
		byRoot  bool
		byOther bool
	}{
		"a display, on":  {pci.Class(pci.ClassVGA) << 8, true, true, true},
		"a display, off": {pci.Class(pci.ClassVGA) << 8, false, false, false},
		// Its parameter is on, and matters to no GPU of the node.
		"no display, on": {pci.Class(pci.Class3D) << 8, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddRootPort(0x3b)
			gpu := sysfstest.GPU(pci.Address{Bus: 0x3b})
			gpu.Class = c.class
			k.Add(gpu)
			k.SetNVIDIAModeset(true)
			k.SetNVIDIAModeset(c.on)
			fs, err := sysfs.Open(k.Root())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = fs.Close() }()
			for who, see := range map[string]struct {
				fs   *sysfs.FS
				want bool
			}{"root": {fs, c.byRoot}, "another user": {fs.WithCopy(unprivileged{fs}), c.byOther}} {
				s, err := inventory.Scan(t.Context(), see.fs)
				if err != nil {
					t.Fatal(err)
				}
				if s.Host.NVIDIAModeset != see.want {
					t.Errorf("%s sees modeset %t, want %t", who, s.Host.NVIDIAModeset, see.want)
				}
			}
		})
	}
}
