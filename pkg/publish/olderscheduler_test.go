package publish_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestOlderScheduler: which devices of a node are allocated by a scheduler that knows neither counters nor taints, such as KAI up to 0.17.0,
// which runs the allocator without its features. It gives no device with counters to anybody, and a tainted one like another.
// Prepare refuses that one: TestQuarantineKeepsTheDeviceFromAll in pkg/prepare.
func TestOlderScheduler(t *testing.T) {
	none := structured.Features{}
	type count struct{ GPUs, VFs, Pairs int }
	for name, test := range map[string]struct {
		pools        map[string]publish.Pool
		older, today count
	}{
		"no pairs":    {publish.Pools(board(t)), count{GPUs: 8, VFs: 16}, count{GPUs: 8, VFs: 16}},
		"pairs":       {publish.Pools(pairedBoard(t)), count{VFs: 8}, count{GPUs: 8, VFs: 8, Pairs: 8}},
		"quarantined": {publish.Pools(quarantinedBoard(t)), count{GPUs: 8, VFs: 16}, count{GPUs: 7, VFs: 15}},
		// The one GPU is tainted, the other shares its card with a sound function: an older scheduler gives away the wrong one.
		"golden, mixed": {golden(t, "mixed"), count{GPUs: 1, VFs: 2}, count{GPUs: 1, VFs: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, scheduler := range []struct {
				name     string
				features structured.Features
				want     count
			}{{"older", none, test.older}, {"today's", defaults(), test.today}} {
				got := count{
					GPUs: len(given(t, scheduler.features, test.pools, "gpu")), VFs: len(given(t, scheduler.features, test.pools, "vf")),
					Pairs: len(given(t, scheduler.features, test.pools, "gpu-vf")),
				}
				if diff := cmp.Diff(scheduler.want, got); diff != "" {
					t.Errorf("the %s gives others (-want +got):\n%s", scheduler.name, diff)
				}
			}
		})
	}
	for tainted, pools := range map[string]map[string]publish.Pool{
		"gpu-0000-11-00-0": publish.Pools(quarantinedBoard(t)), "gpu-0000-3b-00-0": golden(t, "mixed"),
	} {
		if all := given(t, none, pools, "gpu"); !slices.Contains(all, tainted) {
			t.Errorf("the older scheduler gives %v, want the tainted %s among them", all, tainted)
		}
		if all := given(t, defaults(), pools, "gpu"); slices.Contains(all, tainted) {
			t.Errorf("today's scheduler gives %v, want the tainted %s not among them", all, tainted)
		}
	}
}

// board is a node with eight GPUs, and four NICs with four VFs each. Two GPUs and a NIC are at one switch.
func board(t *testing.T) *publish.Node {
	t.Helper()
	var all []device.Function
	for i := range 4 {
		bridge := new(addr(t, fmt.Sprintf("0000:%d0:00.0", i+1)))
		nic := pfWith(t, fmt.Sprintf("0000:%d4:00.0", i+1), 4, 4, 100*i+10)
		for v := range nic {
			nic[v].Switch = bridge
			if v > 0 {
				nic[0].PF.VFs = append(nic[0].PF.VFs, nic[v].Address)
			}
		}
		all = append(all, nic...)
		for g := range 2 {
			gpu := hopper(t, fmt.Sprintf("0000:%d%d:00.0", i+1, g+1), 100*i+g)
			gpu.Switch = bridge
			all = append(all, gpu)
		}
	}
	return nodeOf(all...)
}

func pairedBoard(t *testing.T) *publish.Node {
	t.Helper()
	n := board(t)
	pair(n, v1alpha1.PairingSwitch)
	return n
}

// quarantinedBoard has a GPU and a VF that could not be proven clean.
func quarantinedBoard(t *testing.T) *publish.Node {
	t.Helper()
	n := board(t)
	refuse(n, addr(t, "0000:11:00.0"), rule.Quarantined)
	refuse(n, addr(t, "0000:14:10.0"), rule.Quarantined)
	return n
}

// golden returns the pools of a golden file.
func golden(t *testing.T, name string) map[string]publish.Pool {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var pools map[string]publish.Pool
	if err := json.Unmarshal(text, &pools); err != nil {
		t.Fatal(err)
	}
	return pools
}

// defaults are the features that a cluster of 1.36 and 1.37 has switched on by default.
func defaults() structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		ConsumableCapacity: true, DeviceBindingAndStatus: true,
	}
}

// given are the devices of a type that a scheduler gives to one claim after the other, until none is left.
func given(t *testing.T, features structured.Features, pools map[string]publish.Pool, kind string) []string {
	t.Helper()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	all, cache := resourceSlices(pools), cel.NewCache(10, cel.Features{})
	var names []string
	for {
		allocator, err := structured.NewAllocator(t.Context(), features, state, classes{kind}, all, cache)
		if err != nil {
			t.Fatal(err)
		}
		results, err := allocator.Allocate(t.Context(), node, []*resourceapi.ResourceClaim{claimFor(kind)})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) == 0 {
			return names
		}
		d := results[0].Devices.Results[0]
		state.AllocatedDevices.Insert(structured.MakeDeviceID(v1alpha1.DriverName, d.Pool, d.Device))
		names = append(names, d.Device)
	}
}
