package publish_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// oneCard is the claim of the example for several slices of one card. Of the class there is a stand-in.
func oneCard(t *testing.T) *resourceapi.ResourceClaim {
	t.Helper()
	text, err := os.ReadFile("../../deploy/examples/gpu-slices-of-one-card.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var template resourceapi.ResourceClaimTemplate
	if err := yaml.UnmarshalStrict([]byte(first), &template); err != nil {
		t.Fatal(err)
	}
	c := claimFor("gpuvf")
	c.Spec = template.Spec.Spec
	asked := c.Spec.Devices.Requests[0].Exactly
	asked.DeviceClassName, asked.AllocationMode = "gpuvf", resourceapi.DeviceAllocationModeExactCount
	return c
}

// TestExampleOfOneCard gets its slices of the first card that has as many free, and never of two cards.
func TestExampleOfOneCard(t *testing.T) {
	pools := publish.Pools(nodeOf(append(vfsOf(t, 0x13, 0x1002, 0x74a1, 0x120000, 8), vfsOf(t, 0x14, 0x1002, 0x74a1, 0x120000, 8)...)...))
	for name, c := range map[string]struct {
		held [2]int // how many slices of each card others have
		want string // the card
	}{
		"all are free":                       {[2]int{0, 0}, "13"},
		"one is taken":                       {[2]int{1, 0}, "13"},
		"too few of the first card are free": {[2]int{5, 0}, "14"},
		"too few of each card are free":      {[2]int{5, 6}, ""},
	} {
		var held []publish.Allocated
		for card, count := range c.held {
			for i := range count {
				held = append(held, inPool(t, pools, fmt.Sprintf("gpuvf-0000-%x-02-%d", 0x13+card, i)))
			}
		}
		got := allocate(t, pools, held, oneCard(t))
		of := func(slice string) bool { return strings.HasPrefix(slice, "gpuvf-0000-"+c.want+"-") }
		if c.want == "" && got != nil || c.want != "" && (len(got) != 4 || slices.ContainsFunc(got, func(s string) bool { return !of(s) })) {
			t.Errorf("%s: got %v, want four slices of card %q", name, got, c.want)
		}
	}
}

// inPool is the device of that name, with the pool that has it.
func inPool(t *testing.T, pools map[string]publish.Pool, name string) publish.Allocated {
	t.Helper()
	for _, s := range resourceSlices(pools) {
		if slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == name }) {
			return publish.Allocated{Pool: s.Spec.Pool.Name, Name: name}
		}
	}
	t.Fatalf("no pool has %s", name)
	return publish.Allocated{}
}
