package device_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestPoolOfEachFunction: GPUs and their companions are in the node's pool, a PF and
// its VFs in the PF's.
func TestPoolOfEachFunction(t *testing.T) {
	gpu, nic, vf := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x21}, pci.Address{Bus: 0x21, Device: 2}
	l := device.NewLayout(&device.Snapshot{Functions: []device.Function{
		{Address: nic, Type: device.PFType, PF: &device.PF{TotalVFs: 8}},
		{Address: vf, Type: device.VFType, VF: &device.VF{PF: nic}},
		{Address: gpu, Type: device.GPU},
	}})
	for a, want := range map[pci.Address]string{gpu: "worker-1/kata-vfio.dev", nic: "worker-1/kata-vfio.dev/pf-0000-21-00-0", vf: "worker-1/kata-vfio.dev/pf-0000-21-00-0"} {
		if got := l.Pool("worker-1", a); got != want {
			t.Errorf("Pool(%s) = %q, want %q", a, got, want)
		}
	}
}
