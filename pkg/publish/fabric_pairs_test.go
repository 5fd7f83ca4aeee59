package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// joinedAndPaired is a node with an HGX H100 board, and a NIC with two VFs at the switch of its GPUs. The first two GPUs by address, modules
// 5 and 7, have a pair each.
func joinedAndPaired(t testing.TB) *publish.Node {
	t.Helper()
	functions := pfWith(t, "0000:3d:00.0", 7, 2, 20)
	for i := range functions {
		functions[i].Switch = new(addr(t, "0000:39:00.0"))
		if i > 0 {
			functions[0].PF.VFs = append(functions[0].PF.VFs, functions[i].Address)
		}
	}
	for _, f := range joined(t).Snapshot.Functions {
		if f.Type == device.GPU {
			functions = append(functions, f)
		}
	}
	n := nodeOf(functions...)
	n.Snapshot.Host.Fabric = facts(t, fabric.State{Partitions: fabrictest.H100()})
	withFabric(n, func(c *v1alpha1.NodeConfig) { c.Pairing = v1alpha1.PairingSwitch })
	return n
}

// TestPairsBesidePartitions: a pair is one device with a single GPU of the board. The scheduler's own code gives it or a partition with its
// GPU, and never both.
func TestPairsBesidePartitions(t *testing.T) {
	const pairA, pairB, pairOfGPUs = "gpu-0000-0f-00-0-vf-0000-3d-10-1", "gpu-0000-10-00-0-vf-0000-3d-10-0", "gpu-x2-0000-0f-10"
	for name, c := range map[string]struct {
		held []string
		size int // 0 asks for a pair
		want []string
	}{
		"a pair":                                      {nil, 0, []string{pairA}},
		"the second pair":                             {[]string{pairA}, 0, []string{pairB}},
		"a pair whose GPU is in a partition":          {[]string{pairOfGPUs}, 0, nil},
		"a pair while all are joined":                 {[]string{"gpu-x8-0000-0f-10-41-44-86-87-b8-bb"}, 0, nil},
		"a pair beside another half":                  {[]string{"gpu-x4-0000-86-87-b8-bb"}, 0, []string{pairA}},
		"a pair whose GPU is taken":                   {[]string{"gpu-0000-0f-00-0"}, 0, []string{pairB}},
		"all GPUs while a pair is taken":              {[]string{pairA}, 8, nil},
		"half a board while a pair of it is taken":    {[]string{pairA}, 4, []string{"gpu-x4-0000-86-87-b8-bb"}},
		"two GPUs where the pair's are the last free": {[]string{pairA, "gpu-x4-0000-86-87-b8-bb", "gpu-x2-0000-41-44"}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := joinedAndPaired(t)
			keep(n, publish.Pools(n))
			for _, h := range c.held {
				n.Allocated = append(n.Allocated, publish.Allocated{Pool: fabricPool, Name: h})
			}
			pools := publish.Pools(n)
			checkPools(t, pools)
			claim := claimFor("gpu-vf")
			if c.size > 0 {
				claim = claimForSize(c.size)
			}
			if diff := cmp.Diff(c.want, allocate(t, pools, n.Allocated, claim)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
