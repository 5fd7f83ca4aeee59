package publish_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestQuotaCounters: each GPU and its pair consume alike what a queue charges for them, and all of what there is.
func TestQuotaCounters(t *testing.T) {
	unknown := hopper(t, "0000:5b:00.0", 7)
	unknown.Device = 0xffff
	tests := map[string]struct {
		node *publish.Node
		want map[string]string // by device
	}{
		"alone": {nodeOf(hopper(t, "0000:3b:00.0", 1)), map[string]string{"gpu-0000-3b-00-0": "gpus=1 memory=80Gi use=1"}},
		"with its pair": {paired(t), map[string]string{
			pairedGPU: "gpus=1 memory=80Gi use=1", pairName: "gpus=1 memory=80Gi use=1", "gpu-0000-4b-00-0": "gpus=1 memory=80Gi use=1",
			"vf-0000-3d-10-0": "",
		}},
		"two in a group, which go to one claim": {
			nodeOf(hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 1)),
			map[string]string{"gpu-0000-3b-00-0": "gpus=2 memory=160Gi use=1", "gpu-0000-3c-00-0": "gpus=2 memory=160Gi use=1"},
		},
		"a disk in its group": {
			nodeOf(hopper(t, "0000:3b:00.0", 1), function(t, "0000:3d:00.0", nvme, 1)),
			map[string]string{"gpu-0000-3b-00-0": "gpus=1 memory=80Gi use=1", "nvme-0000-3d-00-0": "use=1"},
		},
		"of unknown memory": {nodeOf(unknown), map[string]string{"gpu-0000-5b-00-0": "gpus=1 use=1"}},
		"gone": {
			withHeld(nodeOf(), publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}),
			map[string]string{"gpu-0000-3b-00-0": ""},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			choose(test.node, &v1alpha1.NodeConfig{Devices: everything().Devices, Pairing: v1alpha1.PairingSwitch, QuotaCounters: true})
			pools := publish.Pools(test.node)
			checkPools(t, pools)
			if diff := cmp.Diff(test.want, consumed(pools)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func withHeld(n *publish.Node, a publish.Allocated) *publish.Node {
	n.Allocated = []publish.Allocated{a}
	return n
}

// consumed lists what each device consumes of all counters, by name.
func consumed(pools map[string]publish.Pool) map[string]string {
	all := map[string]string{}
	for a, d := range published(pools) {
		text := ""
		for _, c := range d.ConsumesCounters {
			for _, name := range slices.Sorted(maps.Keys(c.Counters)) {
				value := c.Counters[name]
				text += fmt.Sprintf(" %s=%s", name, value.Value.String())
			}
		}
		all[a.Name] = text[min(1, len(text)):]
	}
	return all
}

// TestGoneGPUKeepsItsCounter: a queue knows a class only if each of its devices has the counter.
func TestGoneGPUKeepsItsCounter(t *testing.T) {
	gpu := publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}
	cfg := &v1alpha1.NodeConfig{Devices: everything().Devices, QuotaCounters: true}
	n := nodeOf(hopper(t, "0000:3b:00.0", 1))
	choose(n, cfg)
	before := published(publish.Pools(n))
	n.Snapshot.Functions = []device.Function{}
	n.Allocated, n.Consumed = []publish.Allocated{gpu}, consumption(before)
	choose(n, cfg)
	if got := consumed(publish.Pools(n))[gpu.Name]; got != "gpus=1 use=1" {
		t.Errorf("it consumes %q, want %q", got, "gpus=1 use=1")
	}
}
