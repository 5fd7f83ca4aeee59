package publish_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// classSelector is what our DeviceClasses select by.
func classSelector(kind string) string {
	return fmt.Sprintf(`device.driver == "kata-vfio.dev" && device.attributes["kata-vfio.dev"].?type.orValue("") == %q`, kind)
}

// classes lists one DeviceClass per type, as the chart has them.
type classes []string

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, kind := range c {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: classSelector(kind)}}}
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	all, err := c.List()
	i := slices.IndexFunc(all, func(class *resourceapi.DeviceClass) bool { return class.Name == name })
	if err != nil || i < 0 {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	return all[i], nil
}

// resourceSlices returns the pools as a cluster has them, beside a slice of
// another driver whose device has none of our attributes.
func resourceSlices(pools map[string]publish.Pool) []*resourceapi.ResourceSlice {
	node := "worker-1"
	all := []*resourceapi.ResourceSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "other.example.com", NodeName: &node, Devices: []resourceapi.Device{{Name: "d"}},
			Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}}
	for name, p := range pools {
		for i, s := range p.Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: v1alpha1.DriverName, NodeName: &node, Devices: s.Devices, SharedCounters: s.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(p.Slices))},
				},
			})
		}
	}
	slices.SortFunc(all, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// claimFor asks for one device of each class.
func claimFor(kinds ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "u"}}
	for i, kind := range kinds {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name:    fmt.Sprintf("r%d", i),
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: kind, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
	}
	return c
}

// allocate lets the scheduler's own code allocate the claim; nil when it can't.
func allocate(t *testing.T, pools map[string]publish.Pool, held []publish.Allocated, c *resourceapi.ResourceClaim) []string {
	t.Helper()
	var got []string
	for _, a := range allocateFrom(t, cel.NewCache(10, cel.Features{}), resourceSlices(pools), held, c) {
		got = append(got, a.Name)
	}
	return got
}

// allocateFrom is allocate from slices, with the scheduler's cache of compiled selectors.
func allocateFrom(t *testing.T, cache *cel.Cache, published []*resourceapi.ResourceSlice, held []publish.Allocated, c *resourceapi.ResourceClaim) []publish.Allocated {
	t.Helper()
	return allocateWith(t, defaults(), cache, published, held, c)
}

// allocateWith is allocateFrom in a cluster with these features.
func allocateWith(t *testing.T, features structured.Features, cache *cel.Cache, published []*resourceapi.ResourceSlice, held []publish.Allocated,
	c *resourceapi.ResourceClaim,
) []publish.Allocated {
	t.Helper()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, a := range held {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(v1alpha1.DriverName, a.Pool, a.Name))
	}
	lister := classes{"gpu", "pf", "vf", "gpuvf", "gpu-vf", "gpu-partition", "nvme", "accelerator", "other"}
	allocator, err := structured.NewAllocator(t.Context(), features, state, lister, published, cache)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	results, err := allocator.Allocate(t.Context(), node, []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	var got []publish.Allocated
	for _, r := range results {
		for _, d := range r.Devices.Results {
			got = append(got, publish.Allocated{Pool: d.Pool, Name: d.Device})
		}
	}
	return got
}

func TestAllocator(t *testing.T) {
	pfPool := "worker-1/kata-vfio.dev/pf-0000-5e-00-0"
	mates := func() *publish.Node { // a GPU and a disk in one group, another GPU with a sound function apart
		return nodeOf(
			hopper(t, "0000:3b:00.0", 1), function(t, "0000:3d:00.0", nvme, 1),
			hopper(t, "0000:4b:00.0", 2), sound(t, "0000:4b:00.1", 3),
		)
	}
	withVFs := func() *publish.Node { return nodeOf(pfWith(t, "0000:5e:00.0", 7, 2, 10)...) }
	withoutVFs := func() *publish.Node { return nodeOf(pfWith(t, "0000:5e:00.0", 7, 0, 10)...) }
	tests := map[string]struct {
		node *publish.Node
		held []publish.Allocated
		ask  []string
		want []string
	}{
		"a GPU, the first":             {mates(), nil, []string{"gpu"}, []string{"gpu-0000-3b-00-0"}},
		"a GPU whose mate is taken":    {mates(), []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "nvme-0000-3d-00-0"}}, []string{"gpu"}, []string{"gpu-0000-4b-00-0"}},
		"a disk whose mate is taken":   {mates(), []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}}, []string{"nvme"}, nil},
		"a companion of a taken GPU":   {mates(), []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-4b-00-0"}}, []string{"other"}, nil},
		"a GPU of a taken companion":   {mates(), []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "other-0000-4b-00-1"}}, []string{"gpu", "gpu"}, nil},
		"both GPUs":                    {mates(), nil, []string{"gpu", "gpu"}, []string{"gpu-0000-3b-00-0", "gpu-0000-4b-00-0"}},
		"three GPUs of two":            {mates(), nil, []string{"gpu", "gpu", "gpu"}, nil},
		"a VF":                         {withVFs(), nil, []string{"vf"}, []string{"vf-0000-5e-10-0"}},
		"both VFs":                     {withVFs(), nil, []string{"vf", "vf"}, []string{"vf-0000-5e-10-0", "vf-0000-5e-10-1"}},
		"a PF":                         {withoutVFs(), nil, []string{"pf"}, []string{"pf-0000-5e-00-0"}},
		"a VF of a taken PF":           {withVFs(), []publish.Allocated{{Pool: pfPool, Name: "pf-0000-5e-00-0"}}, []string{"vf"}, nil},
		"a PF whose VF is taken, gone": {withoutVFs(), []publish.Allocated{{Pool: pfPool, Name: "vf-0000-5e-10-1"}}, []string{"pf"}, nil},
		"a VF beside a taken VF":       {withVFs(), []publish.Allocated{{Pool: pfPool, Name: "vf-0000-5e-10-0"}}, []string{"vf"}, []string{"vf-0000-5e-10-1"}},
		"a taken VF":                   {withVFs(), []publish.Allocated{{Pool: pfPool, Name: "vf-0000-5e-10-0"}}, []string{"vf", "vf"}, nil},
		"of a type that is not there":  {withVFs(), nil, []string{"gpu"}, nil},
		"a GPU and a VF of two pools":  {nodeOf(append(pfWith(t, "0000:5e:00.0", 7, 1, 10), hopper(t, "0000:3b:00.0", 1))...), nil, []string{"gpu", "vf"}, []string{"gpu-0000-3b-00-0", "vf-0000-5e-10-0"}},
		"VFs in their PF's group":      {oneGroup(pfWith(t, "0000:5e:00.0", 7, 2, 10)), nil, []string{"vf"}, []string{"vf-0000-5e-10-0"}},
		"VFs in one group to two":      {oneGroup(pfWith(t, "0000:5e:00.0", 7, 2, 10)), []publish.Allocated{{Pool: pfPool, Name: "vf-0000-5e-10-0"}}, []string{"vf"}, nil},
		"ports in one group to two":    {oneGroup([]device.Function{function(t, "0000:5e:00.0", nic, 1), function(t, "0000:5e:00.1", nic, 1)}), []publish.Allocated{{Pool: pfPool, Name: "pf-0000-5e-00-1"}}, []string{"pf"}, nil},
		"a board's GPUs and switches": {hgx(t), nil, append(slices.Repeat([]string{"gpu"}, 8), slices.Repeat([]string{"other"}, 4)...), []string{
			"gpu-0000-18-00-0", "gpu-0000-19-00-0", "gpu-0000-3a-00-0", "gpu-0000-3b-00-0", "gpu-0000-9a-00-0", "gpu-0000-9b-00-0",
			"gpu-0000-ba-00-0", "gpu-0000-bb-00-0", "other-0000-06-00-0", "other-0000-07-00-0", "other-0000-08-00-0", "other-0000-09-00-0",
		}},
		"a not isolated device":         {tainted(rule.High), nil, []string{"gpu"}, nil},
		"a device with a lesser reason": {tainted(rule.Medium), nil, []string{"gpu"}, nil}, // Prepare refuses it as well
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.node.Allocated = test.held
			pools := publish.Pools(test.node)
			checkPools(t, pools)
			if diff := cmp.Diff(test.want, allocate(t, pools, test.held, claimFor(test.ask...))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// oneGroup returns a node whose functions are all in one group.
func oneGroup(functions []device.Function) *publish.Node {
	for i := range functions {
		functions[i].Group = new(1)
	}
	return nodeOf(functions...)
}

// tainted returns a node whose GPU has a reason of the severity against it.
func tainted(severity rule.Severity) *publish.Node {
	f := device.Function{Class: gpu3D, Group: new(1)}
	f.Address.Bus = 0x3b
	n := nodeOf(f)
	blemish(n, f.Address, rule.DirectMappedRegion, severity)
	return n
}

func TestToleratedTaint(t *testing.T) {
	c := claimFor("gpu")
	c.Spec.Devices.Requests[0].Exactly.Tolerations = []resourceapi.DeviceToleration{
		{Key: publish.TaintNotIsolated, Operator: resourceapi.DeviceTolerationOpEqual, Value: string(rule.DirectMappedRegion)},
	}
	if got := allocate(t, publish.Pools(tainted(rule.High)), nil, c); len(got) != 1 {
		t.Errorf("got %v, want the tolerated device", got)
	}
}

func TestMatchingRoots(t *testing.T) {
	n := nodeOf(append(pfWith(t, "0000:3b:00.0", 7, 1, 10), hopper(t, "0000:1a:00.0", 1), hopper(t, "0000:3b:1f.0", 2))...)
	c := claimFor("gpu", "vf")
	root := resourceapi.FullyQualifiedName(publish.AttrPCIeRoot)
	c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &root}}
	want := []string{"gpu-0000-3b-1f-0", "vf-0000-3b-10-0"}
	if diff := cmp.Diff(want, allocate(t, publish.Pools(n), nil, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSelectors(t *testing.T) {
	attr := `device.attributes["kata-vfio.dev"]`
	gpu := publish.Pools(mixed(t))["worker-1/kata-vfio.dev"].Slices[0].Devices[0]
	tests := map[string]struct {
		expression string
		want       bool
	}{
		"class":               {classSelector("gpu"), true},
		"another class":       {classSelector("vf"), false},
		"isolated":            {attr + `.?isolated.orValue(false)`, true},
		"link speed":          {attr + `.?linkSpeed.orValue(0) >= 32000`, true},
		"absent attribute":    {attr + `.?pf.orValue("") == "0000:5e:00.0"`, false},
		"vendor and device":   {attr + `.?vendor.orValue("") == "10de" && ` + attr + `.?device.orValue("") == "2330"`, true},
		"model":               {`"model" in ` + attr + ` && ` + attr + `.model.contains("H100")`, true},
		"start of the model":  {attr + `.?model.orValue("").startsWith("GH100")`, true},
		"standard attribute":  {`device.attributes["resource.kubernetes.io"].?numaNode.orValue(-1) == 1`, true},
		"BAR size":            {`device.capacity["kata-vfio.dev"].?bar2.orValue(quantity("0")).compareTo(quantity("80Gi")) >= 0`, true},
		"GPU memory":          {`device.capacity["kata-vfio.dev"].?memory.orValue(quantity("0")).compareTo(quantity("80Gi")) >= 0`, true},
		"method of resetting": {attr + `.?reset.orValue("") in ["flr", "device_specific"]`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result := cel.GetCompiler(cel.Features{}).CompileCELExpression(test.expression, cel.Options{})
			if result.Error != nil {
				t.Fatal(result.Error)
			}
			if result.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
				t.Errorf("the API server refuses the selector: it may cost %d, want at most %d", result.MaxCost, resourceapi.CELSelectorExpressionMaxCost)
			}
			got, _, err := result.DeviceMatches(t.Context(), cel.Device{
				Driver: v1alpha1.DriverName, Attributes: gpu.Attributes, Capacity: gpu.Capacity,
			})
			if err != nil || got != test.want {
				t.Errorf("got %t, %v; want %t", got, err, test.want)
			}
		})
	}
}
