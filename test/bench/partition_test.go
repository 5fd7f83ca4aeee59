package bench

import (
	"encoding/json"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// TestPartitionExampleGetsOneDevice: the claim of the example gets a partition of two GPUs on a node with the guest's version of the
// driver, and nothing on another one.
func TestPartitionExampleGetsOneDevice(t *testing.T) {
	for version, want := range map[string]string{"595.58.03": "gpu-x2-0000-12-32", "570.172.08": ""} {
		a := allocatorOf(t, joinedSlices(t, version), cel.NewCache(10, cel.Features{}), func(*resourceapi.Device) bool { return false })
		devices, err := allocate(t, a, newNode, exampleClaim(t, "partition/pod"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(devices) == 1 {
			got = devices[0]
		}
		if got != want || len(devices) > 1 {
			t.Errorf("driver %s on the node: got %v, want %q", version, devices, want)
		}
	}
}

// joinedSlices are those of a node whose GPUs are an HGX H100 board, with the modules in the order of the addresses.
func joinedSlices(t *testing.T, version string) []*resourceapi.ResourceSlice {
	t.Helper()
	node := fleet.Node(newNode, 0, nil)
	m := &fabric.Map{}
	for i := range node.Snapshot.Functions {
		if f := &node.Snapshot.Functions[i]; f.Type == device.GPU {
			m.Places = append(m.Places, fabric.Place{Module: len(m.Places) + 1, Address: f.Address})
		}
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	node.Snapshot.Host.Fabric = device.FabricFacts{State: text(fabric.State{Partitions: fabrictest.H100()}), Modules: text(m), Driver: version}
	cfg := &v1alpha1.NodeConfig{Fabric: &v1alpha1.Fabric{}}
	cfg.Default()
	node.Selection = nodeconfig.Select(cfg, node.Snapshot)
	return fleet.Slices(publish.Pools(node), newNode, newNode)
}
