package nested

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeviceArgs(t *testing.T) {
	for name, tt := range map[string]struct {
		functions []assigned
		want      []string
	}{
		"none": {nil, nil},
		"groups": {
			[]assigned{{address: "0000:62:00.0"}, {address: "0000:22:00.0"}},
			[]string{
				"-device", "pcie-root-port,id=port0,chassis=1", "-device", "vfio-pci,host=0000:62:00.0,bus=port0",
				"-device", "pcie-root-port,id=port1,chassis=2", "-device", "vfio-pci,host=0000:22:00.0,bus=port1",
			},
		},
		"cdevs, each with an iommufd object of its own": {
			[]assigned{{address: "0000:22:00.0", iommufd: true}, {address: "0000:62:00.0", iommufd: true}},
			[]string{
				"-object", "iommufd,id=iommufd0",
				"-device", "pcie-root-port,id=port0,chassis=1",
				"-device", "vfio-pci,host=0000:22:00.0,bus=port0,iommufd=iommufd0",
				"-object", "iommufd,id=iommufd1",
				"-device", "pcie-root-port,id=port1,chassis=2",
				"-device", "vfio-pci,host=0000:62:00.0,bus=port1,iommufd=iommufd1",
			},
		},
	} {
		if diff := cmp.Diff(tt.want, deviceArgs(tt.functions)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// sysfs has functions in group 15, by address and class, and vfio0 of one.
func sysfs(t *testing.T, classes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for address, class := range classes {
		for _, dir := range []string{filepath.Join(sysPCI, address), filepath.Join(sysGroups, "15/devices", address)} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, sysPCI, address, "class"), []byte(class+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cdev := filepath.Join(root, sysCdevs, "vfio0")
	if err := os.MkdirAll(cdev, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../../0000:62:00.1", filepath.Join(cdev, "device")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestGroupPlugsItsFirstFunction(t *testing.T) {
	sys := sysfs(t, map[string]string{"0000:60:01.0": "0x060400", "0000:62:00.0": "0x030000", "0000:62:00.1": "0x040300"})
	got, err := resolve(sys, []string{"/dev/vfio/15", "/dev/vfio/devices/vfio0"})
	if err != nil {
		t.Fatal(err)
	}
	want := []assigned{{address: "0000:62:00.0"}, {address: "0000:62:00.1", iommufd: true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(assigned{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := resolve(sysfs(t, map[string]string{"0000:60:01.0": "0x060400"}), []string{"/dev/vfio/15"}); err == nil {
		t.Errorf("of a bridge alone %v is plugged", got)
	}
}

func TestResolveOtherNodes(t *testing.T) {
	for _, path := range []string{"/dev/null", "/dev/iommu", "vfio0", ""} {
		if _, err := resolve("/sys", []string{path}); err == nil {
			t.Errorf("%q is taken for a VFIO device node", path)
		}
	}
}
