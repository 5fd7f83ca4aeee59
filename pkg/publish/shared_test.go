package publish_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// shareGPU makes a node share one GPU.
func shareGPU(n *publish.Node, gpu pci.Address) {
	cfg := everything()
	cfg.Devices = slices.Insert(cfg.Devices, 0, v1alpha1.DeviceRule{
		Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}, Addresses: []pci.Address{gpu}}, SharedWith: "gpu.example.com",
	})
	choose(n, cfg)
}

const sharedGPU = "gpu-0000-3b-00-0"

// TestSharedPool: a device is in the pool that the config says, or stays where a claim has it or can have it, withdrawn.
func TestSharedPool(t *testing.T) {
	const second = "gpu-0000-3c-00-0"
	here := func(pool string) publish.Allocated { return publish.Allocated{Pool: pool, Name: sharedGPU} }
	for name, test := range map[string]struct {
		shares              bool
		allocated, lingered string // the pool from which it is
		want                map[string][]string
		withdrawn           bool
	}{
		"shared":     {shares: true, want: map[string][]string{"worker-1/kata-vfio.dev": {second}, "worker-1/kata-vfio.dev/shared": {sharedGPU}}},
		"not shared": {want: map[string][]string{"worker-1/kata-vfio.dev": {sharedGPU, second}}},
		"shared, allocated": {
			shares: true, allocated: "worker-1/kata-vfio.dev/shared", want: map[string][]string{"worker-1/kata-vfio.dev": {second}, "worker-1/kata-vfio.dev/shared": {sharedGPU}},
		},
		"allocated before it was shared": {
			shares: true, allocated: "worker-1/kata-vfio.dev", want: map[string][]string{"worker-1/kata-vfio.dev": {sharedGPU, second}}, withdrawn: true,
		},
		"perhaps allocated before it was shared": {
			shares: true, lingered: "worker-1/kata-vfio.dev", want: map[string][]string{"worker-1/kata-vfio.dev": {sharedGPU, second}}, withdrawn: true,
		},
		"allocated while it was shared": {
			allocated: "worker-1/kata-vfio.dev/shared", want: map[string][]string{"worker-1/kata-vfio.dev": {second}, "worker-1/kata-vfio.dev/shared": {sharedGPU}}, withdrawn: true,
		},
		"perhaps allocated while it was shared": {
			lingered: "worker-1/kata-vfio.dev/shared", want: map[string][]string{"worker-1/kata-vfio.dev": {second}, "worker-1/kata-vfio.dev/shared": {sharedGPU}}, withdrawn: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2))
			if test.shares {
				shareGPU(n, addr(t, "0000:3b:00.0"))
			}
			if test.allocated != "" {
				n.Allocated = []publish.Allocated{here(test.allocated)}
			}
			if test.lingered != "" {
				n.Lingering = []publish.Allocated{here(test.lingered)}
			}
			pools := publish.Pools(n)
			checkPools(t, pools)
			got := map[string][]string{}
			for pool := range pools {
				got[pool] = names(pools[pool])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			d := deviceNamed(pools, sharedGPU)
			if withdrawn := slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == publish.TaintWithdrawn && t.Value == "Moved" }); withdrawn != test.withdrawn {
				t.Errorf("taints are %v, want it withdrawn as Moved: %t", d.Taints, test.withdrawn)
			}
		})
	}
}

// TestSharedDeviceWaits: the scheduler does not bind a pod with a shared device before the controller has reserved it, and the
// attribute names the other driver. Other devices don't delay their pods.
func TestSharedDeviceWaits(t *testing.T) {
	n := nodeOf(hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2))
	shareGPU(n, addr(t, "0000:3b:00.0"))
	pools := publish.Pools(n)
	d, other := deviceNamed(pools, sharedGPU), deviceNamed(pools, "gpu-0000-3c-00-0")
	if d.BindsToNode == nil || !*d.BindsToNode ||
		!slices.Equal(d.BindingConditions, []string{v1alpha1.ConditionTwinReserved}) ||
		!slices.Equal(d.BindingFailureConditions, []string{v1alpha1.ConditionTwinInUse}) {
		t.Errorf("shared device binds to its node: %v, with conditions %v and %v; want true, %s and %s", d.BindsToNode, d.BindingConditions, d.BindingFailureConditions, v1alpha1.ConditionTwinReserved, v1alpha1.ConditionTwinInUse)
	}
	if with := d.Attributes[publish.AttrSharedWith].StringValue; with == nil || *with != "gpu.example.com" {
		t.Errorf("attribute %s is %v, want gpu.example.com", publish.AttrSharedWith, with)
	}
	if _, has := other.Attributes[publish.AttrSharedWith]; has || other.BindsToNode != nil || other.BindingConditions != nil || other.BindingFailureConditions != nil {
		t.Errorf("another device is %+v, want one that waits for nothing", other)
	}
}

// TestSharingChangesOnePool: the node's other pools stay as they are.
func TestSharingChangesOnePool(t *testing.T) {
	text := func(n *publish.Node) map[string]string {
		all := map[string]string{}
		for name, pool := range publish.Pools(n) {
			raw, err := json.Marshal(pool)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(raw)
		}
		return all
	}
	n := mixed(t)
	before := text(n)
	shareGPU(n, addr(t, "0000:3b:00.0"))
	after := text(n)
	for pool := range before {
		if changed := before[pool] != after[pool]; changed != (pool == "worker-1/kata-vfio.dev") {
			t.Errorf("pool %s changed: %t, want %t", pool, changed, !changed)
		}
	}
	if len(after) != len(before)+1 {
		t.Errorf("%d pools, want one more than %d", len(after), len(before))
	}
}
