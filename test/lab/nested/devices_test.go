package nested

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeviceArgs(t *testing.T) {
	for name, tt := range map[string]struct {
		functions []assigned
		want      []string
	}{
		"none": {nil, nil},
		"group": {
			[]assigned{{address: "0000:62:00.0"}, {address: "0000:62:00.1"}},
			[]string{
				"-device", "pcie-root-port,id=port0,chassis=1", "-device", "vfio-pci,host=0000:62:00.0,bus=port0",
				"-device", "pcie-root-port,id=port1,chassis=2", "-device", "vfio-pci,host=0000:62:00.1,bus=port1",
			},
		},
		"cdev": {
			[]assigned{{address: "0000:22:00.0", iommufd: true}},
			[]string{
				"-object", "iommufd,id=iommufd0",
				"-device", "pcie-root-port,id=port0,chassis=1",
				"-device", "vfio-pci,host=0000:22:00.0,bus=port0,iommufd=iommufd0",
			},
		},
	} {
		if diff := cmp.Diff(tt.want, deviceArgs(tt.functions)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestResolveOtherNodes(t *testing.T) {
	for _, path := range []string{"/dev/null", "/dev/iommu", "vfio0", ""} {
		if _, err := resolve([]string{path}); err == nil {
			t.Errorf("%q is taken for a VFIO device node", path)
		}
	}
}
