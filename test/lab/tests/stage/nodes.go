package stage

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
)

// Nodes returns the device nodes of a claim's CDI spec, after a check that each is the character device with the
// numbers that the spec states.
func Nodes(t *testing.T, uid string) []string {
	t.Helper()
	dir, err := cdi.Open(filepath.Join("/", node.DefaultCDIDir))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := dir.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			checkNode(t, n.Path, n.Major, n.Minor)
			if !slices.Contains(paths, n.Path) {
				paths = append(paths, n.Path)
			}
		}
	}
	return paths
}

func checkNode(t *testing.T, path string, major, minor int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || int64(unix.Major(st.Rdev)) != major || int64(unix.Minor(st.Rdev)) != minor {
		t.Errorf("%s is mode %o, device %d:%d; the spec says %d:%d",
			path, st.Mode, unix.Major(st.Rdev), unix.Minor(st.Rdev), major, minor)
	}
}

// WantNode is the node that a function's claim should name, in the machine's variant.
func WantNode(t *testing.T, address string) string {
	t.Helper()
	if kernel.Variant(t) == image.IOMMUFD {
		return filepath.Join("/dev/vfio/devices", kernel.CDev(t, address))
	}
	return filepath.Join("/dev/vfio", kernel.Group(t, address))
}
