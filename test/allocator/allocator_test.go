package allocator

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/test/allocator/golden"
)

const (
	driver = golden.Driver
	node   = golden.Node
)

// kinds are the types of devices, with a DeviceClass of the same name each, and another driver's class.
func kinds() []string { return []string{"gpu", "vf", "pf", "nvme", "other", "gpu-vf", "foreign"} }

// classes lists the DeviceClasses by name.
type classes struct{}

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	selector := fmt.Sprintf(`device.driver == %q && device.attributes[%q].type == %q`, driver, driver, name)
	if name == "foreign" {
		selector = `device.driver == "foreign.example.com"`
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector}}}
	return class, nil
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, kind := range kinds() {
		class, err := c.Get(kind)
		if err != nil {
			return nil, err
		}
		all = append(all, class)
	}
	return all, nil
}

// goldenSlices are the ResourceSlices of a golden file of package publish.
func goldenSlices(t *testing.T, name string) []*resourceapi.ResourceSlice {
	t.Helper()
	return golden.Slices(t, filepath.Join("../../pkg/publish/testdata", name+".json"))
}

// foreign is a slice pair of another driver, whose device has a counter. Its pool has the name of ours: allocators up to 1.36.3 take the
// counters of one for the other's. Most drivers name their pool after the node, as kata-vfio did.
func foreign() []*resourceapi.ResourceSlice {
	memory := map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("80Gi")}}
	device := resourceapi.Device{Name: "part", ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "whole", Counters: memory}}}
	return []*resourceapi.ResourceSlice{
		golden.Slice("foreign.example.com", node+"/kata-vfio.dev", 0, 2, nil, []resourceapi.CounterSet{{Name: "whole", Counters: memory}}),
		golden.Slice("foreign.example.com", node+"/kata-vfio.dev", 1, 2, []resourceapi.Device{device}, nil),
	}
}

// request asks for a number of devices of a class.
func request(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

func all(name, class string) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeAll,
	}}
}

// allocate returns the devices that a claim gets, none if it stays pending.
func allocate(t *testing.T, from []*resourceapi.ResourceSlice, spec resourceapi.DeviceClaim, held ...structured.DeviceID) ([]string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New(held...),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	// What clusters have by default.
	features := structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true, DeviceBindingAndStatus: true,
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes{}, from, cel.NewCache(10, cel.Features{}))
	if err != nil {
		t.Fatal(err)
	}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "u"}}
	claim.Spec.Devices = spec
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{claim})
	var got []string
	for _, r := range results {
		for _, d := range r.Devices.Results {
			got = append(got, d.Device)
		}
	}
	return got, err
}

// TestGoldenSlices: a claim gets as many devices of a type as are sound, and not one more.
func TestGoldenSlices(t *testing.T) {
	for name, want := range map[string]map[string]int64{
		"mixed":     {"gpu": 1, "vf": 2, "pf": 1, "other": 1},
		"allocated": {"vf": 2},
		"nothing":   {},
		"shared":    {"gpu": 1, "vf": 2, "pf": 1, "other": 1},
		"quotas":    {"gpu": 1, "vf": 2, "pf": 1, "other": 1},
		"upgraded":  {"gpu": 1, "pf": 1}, // the GPU is a claim's, of which this test knows nothing
		"unwell":    {"gpu": 1, "vf": 1, "pf": 1, "other": 1},
		"paired":    {"gpu": 8, "vf": 8, "gpu-vf": 8},
	} {
		t.Run(name, func(t *testing.T) {
			from := goldenSlices(t, name)
			for _, kind := range kinds() {
				for count := int64(1); count <= want[kind]+1; count++ {
					got, err := allocate(t, from, resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request("r", kind, count)}})
					if fits := count <= want[kind]; err != nil || fits != (len(got) == int(count)) {
						t.Errorf("%d of %s: %d devices, %v; want %d at most", count, kind, len(got), err, want[kind])
					}
				}
			}
		})
	}
}

// TestPairs are claims that older allocators get wrong: they panic, leave them pending, or give a GPU twice.
func TestPairs(t *testing.T) {
	near := resourceapi.FullyQualifiedName("kata-vfio.dev/pcieSwitch")
	for name, test := range map[string]struct {
		spec  resourceapi.DeviceClaim
		other bool // with the slices of another driver
		want  int
		fails bool
	}{
		"all pairs":            {spec: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{all("r", "gpu-vf")}}, want: 8},
		"counts that overflow": {spec: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request("a", "gpu", math.MaxInt64), request("b", "gpu", math.MaxInt64)}}, fails: true},
		"a VF at a GPU's switch, and the other GPUs": {spec: resourceapi.DeviceClaim{
			Requests:    []resourceapi.DeviceRequest{request("vf", "vf", 1), request("gpu", "gpu", 1), request("rest", "gpu", 7)},
			Constraints: []resourceapi.DeviceConstraint{{Requests: []string{"vf", "gpu"}, MatchAttribute: &near}},
		}, want: 9},
		"a GPU alone and in a pair": {spec: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request("gpu", "gpu", 8), request("pair", "gpu-vf", 1)},
		}},
		"the same beside another driver": {spec: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request("foreign", "foreign", 1), request("gpu", "gpu", 8), request("pair", "gpu-vf", 1)},
		}, other: true},
		"what fits beside another driver": {spec: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request("foreign", "foreign", 1), request("gpu", "gpu", 7), request("pair", "gpu-vf", 1)},
		}, other: true, want: 9},
	} {
		t.Run(name, func(t *testing.T) {
			from := goldenSlices(t, "paired")
			if test.other {
				from = append(from, foreign()...)
			}
			got, err := allocate(t, from, test.spec)
			if (err != nil) != test.fails || len(got) != test.want {
				t.Errorf("%d devices (%v), %v; want %d", len(got), got, err, test.want)
			}
		})
	}
}
