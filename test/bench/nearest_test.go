package bench

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// exampleClaim is the claim of one of deploy/examples, with the defaults that the API server fills in.
func exampleClaim(t *testing.T, name string) *resourceapi.ResourceClaim {
	t.Helper()
	text, err := os.ReadFile("../../deploy/examples/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	raw, err := v1alpha1.YAMLToJSON([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	var template resourceapi.ResourceClaimTemplate
	if err := json.Unmarshal(raw, &template); err != nil {
		t.Fatal(err)
	}
	return defaulted(&template.Spec.Spec)
}

// defaulted is a claim with the defaults that the API server fills in.
func defaulted(spec *resourceapi.ResourceClaimSpec) *resourceapi.ResourceClaim {
	c := asking(spec.Devices.Requests...)
	c.Spec = *spec
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeExactCount, max(r.Exactly.Count, 1)
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].AllocationMode, r.FirstAvailable[j].Count = resourceapi.DeviceAllocationModeExactCount, 1
		}
	}
	return c
}

// got returns what the claim gets on a node of which somebody else has the devices that begin so.
func got(t *testing.T, n *publish.Node, c *resourceapi.ResourceClaim, taken ...string) string {
	t.Helper()
	a := allocatorOf(t, fleet.Slices(publish.Pools(n), n.Name, n.Name), cel.NewCache(10, cel.Features{}), func(d *resourceapi.Device) bool {
		return slices.ContainsFunc(taken, func(begin string) bool { return strings.HasPrefix(d.Name, begin) })
	})
	devices, err := allocate(t, a, n.Name, c)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(devices, " ")
}

func TestNearestAreTaken(t *testing.T) {
	edit := func(n *publish.Node, change func(f *device.Function)) {
		for i := range n.Snapshot.Functions {
			change(&n.Snapshot.Functions[i])
		}
	}
	tests := map[string]struct {
		change func(f *device.Function)
		taken  []string
		want   string
	}{
		"at one switch": {nil, nil, "gpu-0000-12-00-0 vf-0000-14-00-0"},
		"at another switch rather than farther from the first GPU": {nil, []string{"vf-0000-14", "vf-0000-24"}, "gpu-0000-32-00-0 vf-0000-34-00-0"},
		"under one root": {
			func(f *device.Function) { // the last GPU has a switch of its own, and the others are taken
				if f.Type == device.GPU {
					f.Switch = &pci.Address{Bus: f.Address.Bus - 1, Device: 1}
				}
			},
			[]string{"gpu-0000-12", "gpu-0000-22"},
			"gpu-0000-32-00-0 vf-0000-34-00-0",
		},
		"on a node without switches": {
			func(f *device.Function) {
				f.Switch, f.Upstream = nil, []pci.Address{{Bus: f.Upstream[0].Bus, Device: f.Address.Bus % 16}}
			},
			[]string{"gpu-0000-12"},
			"gpu-0000-22-00-0 vf-0000-24-00-0",
		},
		"on one NUMA node":   {nil, []string{"vf-0000-1", "vf-0000-2", "vf-0000-3", "vf-0000-4", "vf-0000-5", "gpu-0000-6", "gpu-0000-7", "gpu-0000-8"}, "gpu-0000-52-00-0 vf-0000-64-00-0"},
		"not on another one": {nil, []string{"vf-0000-1", "vf-0000-2", "vf-0000-3", "vf-0000-4", "gpu-0000-5", "gpu-0000-6", "gpu-0000-7", "gpu-0000-8"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := fleet.Node(fleet.Name(0), 4, nil)
			if test.change != nil {
				edit(n, test.change)
			}
			if devices := got(t, n, exampleClaim(t, "gpu-and-vf-nearest"), test.taken...); devices != test.want {
				t.Errorf("got %q, want %q", devices, test.want)
			}
		})
	}
}

func TestPairsAreTaken(t *testing.T) {
	n := fleet.Node(fleet.Name(0), 4, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch})
	if pairs := n.Selection.Pairs(); len(pairs) != fleet.Rails {
		t.Fatalf("%d pairs, want %d; %v", len(pairs), fleet.Rails, n.Selection.Problems())
	}
	c := exampleClaim(t, "gpu-vf-pair")
	if devices := got(t, n, c); devices != "gpu-0000-12-00-0-vf-0000-14-00-3" {
		t.Errorf("got %q", devices)
	}
	c.Spec.Devices.Requests[0].Exactly.Count = fleet.Rails
	if devices := got(t, n, c); strings.Count(devices, "gpu") != fleet.Rails {
		t.Errorf("got %q, want all pairs", devices)
	}
	if devices := got(t, n, c, "gpu-0000-42-00-0"); devices != "" {
		t.Errorf("got %q, want nothing: one pair or its GPU is taken", devices)
	}
	n.Selection = nodeconfig.Select(nil, n.Snapshot)
	if devices := got(t, n, c); devices != "" {
		t.Errorf("got %q where there are no pairs", devices)
	}
}
