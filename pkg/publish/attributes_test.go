package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestRDMADoesNotComeAndGoWithAVFsDriver: claims select by it.
func TestRDMADoesNotComeAndGoWithAVFsDriver(t *testing.T) {
	functions := append(pfWith(t, "0000:5e:00.0", 7, 3, 10), pfWith(t, "0000:81:00.0", 7, 1, 30)...)
	n := nodeOf(functions...)
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		switch f.Address {
		case addr(t, "0000:5e:00.0"):
			f.Children.RDMA = []string{"mlx5_0"}
		case addr(t, "0000:5e:10.0"):
			f.Driver, f.Children.RDMA = "mlx5_core", []string{"mlx5_1"}
		case addr(t, "0000:5e:10.1"):
			f.Driver = "vfio-pci"
		}
	}
	got := map[string]bool{}
	for _, p := range publish.Pools(n) {
		for _, s := range p.Slices {
			for _, d := range s.Devices {
				rdma := d.Attributes[publish.AttrRDMA].BoolValue
				got[d.Name] = rdma != nil && *rdma
			}
		}
	}
	want := map[string]bool{"vf-0000-5e-10-0": true, "vf-0000-5e-10-1": true, "vf-0000-5e-10-2": true, "vf-0000-81-10-0": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rdma (-want +got):\n%s", diff)
	}
}
