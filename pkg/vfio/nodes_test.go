package vfio_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

func TestNodes(t *testing.T) {
	group := 15
	tests := []struct {
		name string
		f    device.Function
		want []string
	}{
		{"no group, no children", device.Function{}, nil},
		{
			"on VFIO",
			device.Function{Group: &group, Children: device.Children{VFIO: "vfio3", Nodes: []string{"vfio/devices/vfio3"}}},
			[]string{"/dev/vfio/15", "/dev/vfio/devices/vfio3", "/dev/vfio/noiommu-15"},
		},
		{
			"a GPU",
			device.Function{Children: device.Children{DRM: []string{"card0", "renderD128"}, Nodes: []string{"dri/card0", "nvidia0"}}},
			[]string{"/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidia0"},
		},
		{
			"a disk",
			device.Function{Children: device.Children{NVMe: []string{"nvme0"}, Block: []string{"nvme0n1"}, Nodes: []string{"nvme0n1p1"}}},
			[]string{"/dev/nvme0", "/dev/nvme0n1", "/dev/nvme0n1p1"},
		},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, vfio.Nodes(&tt.f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
