package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// publishedFleet is a node with eight GPUs and eight NICs, as its plugin publishes it.
func publishedFleet(config *v1alpha1.NodeConfig) []*resourceapi.ResourceSlice {
	const node = "n1"
	all := fleet.Slices(publish.Pools(fleet.Node(node, 2, config)), node, node)
	for i := range all {
		all[i] = all[i].DeepCopy()
	}
	return all
}

func fleetModel(slices []*resourceapi.ResourceSlice) *cluster.Cluster {
	c := &cluster.Cluster{}
	for _, s := range slices {
		c.Add(s)
	}
	return c
}

func kindOfDevice(d *resourceapi.Device) string {
	if k := d.Attributes[publish.AttrType].StringValue; k != nil {
		return *k
	}
	return ""
}

// TestCountIsThatOfTheUntaintedGPUs: whatever devices are tainted, with pairs and without, the count is the number of GPUs of which a
// device is left to claims.
func TestCountIsThatOfTheUntaintedGPUs(t *testing.T) {
	random, seen := rand.New(rand.NewPCG(1, 2)), map[int]bool{}
	effects := []resourceapi.DeviceTaintEffect{resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute, resourceapi.DeviceTaintEffectNone}
	for _, config := range []*v1alpha1.NodeConfig{nil, {Pairing: v1alpha1.PairingSwitch}, {Pairing: v1alpha1.PairingSwitch, QuotaCounters: true}} {
		for range 200 {
			slices, want := publishedFleet(config), map[string]bool{}
			for _, s := range slices {
				for i := range s.Spec.Devices {
					d, effect := &s.Spec.Devices[i], effects[random.IntN(len(effects))]
					away := random.IntN(3) > 0
					if away {
						d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: publish.TaintQuarantined, Effect: effect})
					}
					kind, address := kindOfDevice(d), d.Attributes[publish.AttrPCIBusID].StringValue
					if (kind == "gpu" || kind == "gpu-vf") && (!away || effect == resourceapi.DeviceTaintEffectNone) {
						want[*address] = true
					}
				}
			}
			got, known := countedGPUs(fleetModel(slices), "n1", nil)
			if got != len(want) || !known {
				t.Fatalf("%+v: %d GPUs, known %v, want %d", config, got, known, len(want))
			}
			seen[got] = true
		}
	}
	if len(seen) < 5 {
		t.Errorf("only the counts %v were tried", seen)
	}
}

func TestCountOfANode(t *testing.T) {
	whole := publishedFleet(nil)
	taintAll := func(key string) []*resourceapi.ResourceSlice {
		slices := publishedFleet(nil)
		for _, s := range slices {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: key, Value: "0123456789abcdef", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			}
		}
		return slices
	}
	shared := publishedFleet(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: "gpu.example.com"}}})
	older := publishedFleet(nil)
	for _, s := range older {
		s.Spec.Pool.Generation = 0
	}
	unfinished := publishedFleet(nil)
	for _, s := range unfinished {
		s.Spec.Pool.ResourceSliceCount++
	}
	for name, c := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		node   string
		want   int
		known  bool
	}{
		"whole":                     {whole, "n1", 8, true},
		"another node":              {whole, "n2", 0, true},
		"a tenant's domain":         {taintAll(v1alpha1.TaintTenant), "n1", 8, true},
		"drained":                   {taintAll(publish.TaintDrain), "n1", 0, true},
		"shared with a driver":      {shared, "n1", 0, true},
		"beside an older state":     {append(older, whole...), "n1", 8, true},
		"while it is being written": {unfinished, "n1", 0, false},
	} {
		if got, known := countedGPUs(fleetModel(c.slices), c.node, nil); got != c.want || known != c.known {
			t.Errorf("%s: %d GPUs, known %v, want %d, %v", name, got, known, c.want, c.known)
		}
	}
}

// TestSlicesStandForTheCount: as many placeholders as GPUs, each once, in slices that the API server takes, which no claim can use.
func TestSlicesStandForTheCount(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid"}
	for _, n := range []int{0, 1, 8, 64, 65, 200} {
		slices, devices, names := placeholders("n1", n, owner), map[string]bool{}, map[string]bool{}
		for _, s := range slices {
			names[s.Name] = true
			if s.Spec.Pool.ResourceSliceCount != int64(len(slices)) || len(s.Spec.Devices) == 0 || len(s.Spec.Devices) > 64 || s.OwnerReferences[0] != owner {
				t.Errorf("%d GPUs: slice %+v", n, s)
			}
			if !strings.Contains(s.Spec.Driver, "gpu") {
				t.Errorf("KAI does not count devices of driver %s", s.Spec.Driver)
			}
			for _, d := range s.Spec.Devices {
				devices[d.Name] = true
				if len(d.Taints) != 1 || d.Taints[0].Effect != resourceapi.DeviceTaintEffectNoSchedule {
					t.Errorf("a claim can get placeholder %s", d.Name)
				}
			}
		}
		if len(devices) != n || len(names) != len(slices) {
			t.Errorf("%d placeholders in %d slices with %d names, want %d", len(devices), len(slices), len(names), n)
		}
	}
}

func TestNamesOfSlicesFit(t *testing.T) {
	for _, node := range []string{"n", strings.Repeat("n", 200), strings.Repeat("a", 253), strings.Repeat("a", 252) + "b"} {
		slices := placeholders(node, 65, metav1.OwnerReference{})
		for i, s := range slices {
			if wrong := validation.IsDNS1123Subdomain(s.Name); len(wrong) > 0 {
				t.Errorf("node of %d characters, slice %d: %s: %v", len(node), i, s.Name, wrong)
			}
		}
	}
	one, other := placeholders(strings.Repeat("a", 253), 1, metav1.OwnerReference{}), placeholders(strings.Repeat("a", 252)+"b", 1, metav1.OwnerReference{})
	if fmt.Sprint(one[0].Name) == other[0].Name {
		t.Errorf("two nodes have one slice %s", one[0].Name)
	}
}
