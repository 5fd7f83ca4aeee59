package publish_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Why claims can't choose among the vGPU types of a GPU, and the node config fixes one: vGPUs of one GPU have one size, and counters
// can't say that. A GPU of 140 GiB has 4 vGPUs of 35 GiB or 2 of 70 GiB.
const (
	gpuGiB         = 140
	smallGiB, most = 35, 4
	largeGiB       = 70
)

// choice is a pool in which claims choose: a device for each size and slot, over one counter. With groups, a size is one.
func choice(groups bool) map[string]publish.Pool {
	quantity := func(gib int) resourceapi.Counter {
		return resourceapi.Counter{Value: resource.MustParse(fmt.Sprintf("%dGi", gib))}
	}
	kind := "gpuvf"
	var devices []resourceapi.Device
	for _, size := range []int{smallGiB, largeGiB} {
		for slot := range gpuGiB / size {
			uses := resourceapi.DeviceCounterConsumption{CounterSet: "gpu", Counters: map[string]resourceapi.Counter{"memory": quantity(size)}}
			if groups {
				uses.CompatibilityGroups = []string{fmt.Sprintf("size-%d", size)}
			}
			size := int64(size)
			devices = append(devices, resourceapi.Device{
				Name: fmt.Sprintf("vgpu-%d-%d", size, slot), ConsumesCounters: []resourceapi.DeviceCounterConsumption{uses},
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"kata-vfio.dev/type": {StringValue: &kind}, "kata-vfio.dev/gib": {IntValue: &size},
				},
			})
		}
	}
	return map[string]publish.Pool{"worker-1": {Slices: []publish.Slice{
		{SharedCounters: []resourceapi.CounterSet{{Name: "gpu", Counters: map[string]resourceapi.Counter{"memory": quantity(gpuGiB)}}}},
		{Devices: devices},
	}}}
}

// TestClaimsCannotChooseVGPUTypes shows what a scheduler makes of a free choice, with its own code: with counters alone it gives a size
// that the driver refuses beside another one. Compatibility groups say it, and where their gate is off, which is the default, nothing of
// the pool is given. If this test fails, one of these has changed, and a free choice may be possible.
func TestClaimsCannotChooseVGPUTypes(t *testing.T) {
	on := defaults()
	on.CompatibilityGroups = true
	for name, c := range map[string]struct {
		groups               bool
		features             structured.Features
		first, beside, mixed bool // whether a claim gets the first vGPU, one of its size beside it, and one of the other size
	}{
		"counters alone":            {false, defaults(), true, true, true},
		"groups, and their gate":    {true, on, true, true, false},
		"groups, the gate is off":   {true, defaults(), false, false, false},
		"counters, groups' gate on": {false, on, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			pools := resourceSlices(choice(c.groups))
			gets := func(gib int, held ...publish.Allocated) bool {
				claim := claimFor("gpuvf")
				claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
					Expression: fmt.Sprintf(`device.attributes["kata-vfio.dev"].?gib.orValue(0) == %d`, gib),
				}}}
				return len(allocateWith(t, c.features, cel.NewCache(10, cel.Features{}), pools, held, claim)) == 1
			}
			held := []publish.Allocated{{Pool: "worker-1", Name: "vgpu-35-0"}, {Pool: "worker-1", Name: "vgpu-35-1"}}
			if got := gets(smallGiB); got != c.first {
				t.Errorf("the first vGPU is given: %t, want %t", got, c.first)
			}
			if got := gets(smallGiB, held...); got != c.beside {
				t.Errorf("another vGPU of the size is given: %t, want %t", got, c.beside)
			}
			if got := gets(largeGiB, held...); got != c.mixed {
				t.Errorf("a vGPU of another size is given: %t, want %t", got, c.mixed)
			}
		})
	}
}

// TestNoCountersKeepVGPUsToOneSize: whatever a vGPU of each size consumes, counters that admit the GPU full of either size admit half of
// each. Sums of counters are linear, and the mix is the mean of the two.
func TestNoCountersKeepVGPUsToOneSize(t *testing.T) {
	const limit = 40
	for has := range limit {
		for small := range limit {
			for large := range limit {
				full := most*small <= has && gpuGiB/largeGiB*large <= has
				if mix := most/2*small + large; full && mix > has {
					t.Fatalf("a counter of %d keeps vGPUs that consume %d and %d apart, want no such counter", has, small, large)
				}
			}
		}
	}
}

// TestChoiceOfVGPUTypesInNumbers: an H200 whose 141 GB are offered in halves down to 4 GB is 63 devices a series. 8 of them fill 8 slices.
func TestChoiceOfVGPUTypesInNumbers(t *testing.T) {
	devices := 0
	for instances := 1; instances <= 32; instances *= 2 {
		devices += instances
	}
	if devices != 63 || (8*devices+publish.MaxDevices-1)/publish.MaxDevices != 8 {
		t.Errorf("%d devices for a GPU, at most %d in a slice; want 63, and 8 slices for 8 GPUs, as LIMITS.md says", devices, publish.MaxDevices)
	}
}
