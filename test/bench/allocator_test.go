package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

const (
	// simulatedNodes is the size of the cluster in which claims are scheduled, and simulatedVFs what each PF has there.
	simulatedNodes, simulatedVFs = 1000, 16
	// filterTimeout is the scheduler's limit for one node (KubeSchedulerConfiguration, filterTimeout of DynamicResources).
	filterTimeout = 10 * time.Second
	// caseTime bounds a case: what is slow is tried on fewer nodes.
	caseTime = time.Second
)

// scheduling is one claim in one state of the nodes.
type scheduling struct {
	name  string
	claim *resourceapi.ResourceClaim
	// taken selects the devices of each node that others have.
	taken func(d *resourceapi.Device) bool
}

func schedulings() []scheduling {
	const root, node, nic = publish.AttrPCIeRoot, publish.AttrNUMANode, v1alpha1.DriverName + "/" + publish.AttrPCIeSwitch
	free := func(*resourceapi.Device) bool { return false }
	is := func(d *resourceapi.Device, kind string) bool { return attr(d, publish.AttrType) == kind }
	allVFs := func(d *resourceapi.Device) bool { return is(d, "vf") }
	oneRootsVFs := func(d *resourceapi.Device) bool { return is(d, "vf") && attr(d, root) == "pci0000:40" }
	threeGPUs := func(d *resourceapi.Device) bool { return is(d, "gpu") && attr(d, root) < "pci0000:40" }
	oneGPU := func(d *resourceapi.Device) bool { return is(d, "gpu") && attr(d, root) == "pci0000:40" }
	return []scheduling{
		{"1 GPU", asking(requestFor("gpu", "gpu", 1)), free},
		{"8 GPUs", asking(requestFor("gpu", "gpu", 8)), free},
		{"8 GPUs of 7", asking(requestFor("gpu", "gpu", 8)), oneGPU},
		{"1 VF", asking(requestFor("vf", "vf", 1)), free},
		{"GPU and VF of one root", together(root, 1), free},
		{"GPU and VF of one switch", together(nic, 1), free},
		{"GPU and VF, firstAvailable switch, root, NUMA", nearest(nic, root, node), free},
		{"the same, all VFs taken", nearest(nic, root, node), allVFs},
		{"8 GPUs and VFs, 8 constraints", together(root, 8), free},
		{"the same, the GPUs first", grouped(together(root, 8)), free},
		{"8 of them, one root's VFs taken", together(root, 8), oneRootsVFs},
		{"8 of them, one GPU taken", together(root, 8), oneGPU},
		{"6 of them of 5", together(root, 6), threeGPUs},
		{"1 pair", asking(requestFor("pair", "gpu-vf", 1)), free},
		{"8 pairs", asking(requestFor("pair", "gpu-vf", 8)), free},
		{"8 pairs of 7, a GPU is taken", asking(requestFor("pair", "gpu-vf", 8)), oneGPU},
		{"8 pairs, one root's VFs taken", asking(requestFor("pair", "gpu-vf", 8)), oneRootsVFs},
		{"6 pairs of 5", asking(requestFor("pair", "gpu-vf", 6)), threeGPUs},
	}
}

func requestFor(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

func asking(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "uid"}}
	c.Spec.Devices.Requests = requests
	return c
}

func match(c *resourceapi.ResourceClaim, attribute resourceapi.QualifiedName, requests ...string) {
	name := resourceapi.FullyQualifiedName(attribute)
	c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, resourceapi.DeviceConstraint{Requests: requests, MatchAttribute: &name})
}

// together asks for GPUs, each with a VF of the same attribute; each VF follows its GPU.
func together(attribute resourceapi.QualifiedName, n int) *resourceapi.ResourceClaim {
	c := asking()
	for i := range n {
		gpu, vf := fmt.Sprintf("gpu%d", i), fmt.Sprintf("vf%d", i)
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, requestFor(gpu, "gpu", 1), requestFor(vf, "vf", 1))
		match(c, attribute, gpu, vf)
	}
	return c
}

// grouped puts a claim's GPUs before its VFs.
func grouped(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	slices.SortStableFunc(c.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int {
		return strings.Compare(a.Exactly.DeviceClassName, b.Exactly.DeviceClassName)
	})
	return c
}

// nearest asks for a GPU and a VF as near to it as there is one. The alternatives come first: the scheduler goes through
// all devices for each before it takes the next.
func nearest(attributes ...resourceapi.QualifiedName) *resourceapi.ResourceClaim {
	c := asking(resourceapi.DeviceRequest{Name: "gpu"}, requestFor("vf", "vf", 1))
	for i, a := range attributes {
		sub := resourceapi.DeviceSubRequest{
			Name: fmt.Sprintf("near%d", i), DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
		c.Spec.Devices.Requests[0].FirstAvailable = append(c.Spec.Devices.Requests[0].FirstAvailable, sub)
		match(c, a, "vf", "gpu/"+sub.Name)
	}
	return c
}

// classes are the chart's DeviceClasses, by the types that they select.
type classes []string

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := make([]*resourceapi.DeviceClass, len(c))
	for i, kind := range c {
		all[i] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind}}
		all[i].Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
			`device.driver == %q && device.attributes[%[1]q].?type.orValue("") == %[2]q`, v1alpha1.DriverName, kind)}}}
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	all, err := c.List()
	i := slices.Index(c, strings.TrimSuffix(name, "."+v1alpha1.DriverName))
	if err != nil || i < 0 {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	return all[i], nil
}

// simulation is a cluster of nodes in one layout.
type simulation struct {
	slices []*resourceapi.ResourceSlice
	cache  *cel.Cache
}

func newSimulation(l layout) *simulation {
	c := &simulation{cache: cel.NewCache(10, cel.Features{})}
	for i := range simulatedNodes {
		c.slices = append(c.slices, fleet.Slices(l.pools, fleet.Name(0), fleet.Name(i))...)
	}
	return c
}

// has reports whether the nodes have a device of the class.
func (c *simulation) has(class string) bool {
	ofClass := func(d resourceapi.Device) bool { return attr(&d, publish.AttrType) == class }
	return slices.ContainsFunc(c.slices[:len(c.slices)/simulatedNodes], func(s *resourceapi.ResourceSlice) bool {
		return slices.ContainsFunc(s.Spec.Devices, ofClass)
	})
}

// schedule has the scheduler's allocator try the claim on one node after the other, and returns the outcome with the
// median, the least and the most of the times, in milliseconds, and the number of nodes where it is not all.
func (c *simulation) schedule(b *testing.B, s *scheduling) string {
	b.Helper()
	a := allocatorOf(b, c.slices, c.cache, s.taken)
	var took []time.Duration
	outcome := "no"
	for i, begin := 0, time.Now(); i < simulatedNodes && (i == 0 || time.Since(begin) < caseTime); i++ {
		start := time.Now()
		devices, err := allocate(b, a, fleet.Name(i), s.claim)
		took = append(took, time.Since(start))
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			outcome = "timeout"
		case err != nil:
			b.Fatalf("%s: on %s: %v", s.name, fleet.Name(i), err)
		case len(devices) > 0:
			outcome = "yes"
		}
	}
	slices.Sort(took)
	text := fmt.Sprintf("%s %.2g (%.2g-%.2g)", outcome, milliseconds(took[len(took)/2]), milliseconds(took[0]), milliseconds(took[len(took)-1]))
	if len(took) < simulatedNodes {
		text += fmt.Sprintf(" of %d", len(took))
	}
	return text
}

// allocatorOf returns the scheduler's allocator, as it is with the gates of 1.36 and 1.37 that are on by default.
func allocatorOf(tb testing.TB, all []*resourceapi.ResourceSlice, cache *cel.Cache, taken func(d *resourceapi.Device) bool) structured.Allocator {
	tb.Helper()
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for _, s := range all {
		for i := range s.Spec.Devices {
			if d := &s.Spec.Devices[i]; taken(d) {
				state.AllocatedDevices.Insert(structured.MakeDeviceID(v1alpha1.DriverName, s.Spec.Pool.Name, d.Name))
			}
		}
	}
	features := structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		ConsumableCapacity: true, DeviceBindingAndStatus: true,
	}
	a, err := structured.NewAllocator(tb.Context(), features, state, classes{"gpu", "vf", "pf", "gpu-vf"}, all, cache)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// allocate returns the devices that the claim gets on the node; none where it doesn't fit.
func allocate(tb testing.TB, a structured.Allocator, node string, c *resourceapi.ResourceClaim) ([]string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), filterTimeout)
	defer cancel()
	results, err := a.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{c})
	var devices []string
	for _, r := range results {
		for _, d := range r.Devices.Results {
			devices = append(devices, d.Device)
		}
	}
	return devices, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// BenchmarkScheduling has claims scheduled in a cluster of 1,000 nodes with 8 GPUs and 8 PFs each, for each layout of
// their ResourceSlices. It prints the time for one node, and what the layout costs.
func BenchmarkScheduling(b *testing.B) {
	all := layouts(simulatedVFs)
	for first := true; b.Loop(); first = false {
		if !first {
			continue // one round tries each case on up to 1,000 nodes
		}
		cells := make([][]string, len(schedulings()))
		for _, l := range all {
			c := newSimulation(l)
			for i, s := range schedulings() {
				cell := "-"
				if c.has(lastClass(s.claim)) {
					cell = c.schedule(b, &s)
				}
				cells[i] = append(cells[i], cell)
			}
		}
		show(b, all, cells)
	}
	b.ReportMetric(0, "ns/op")
}

// lastClass is a claim's only class, or that of its VFs.
func lastClass(c *resourceapi.ResourceClaim) string {
	last := len(c.Spec.Devices.Requests) - 1
	return c.Spec.Devices.Requests[last].Exactly.DeviceClassName
}

func show(b *testing.B, all []layout, cells [][]string) {
	b.Helper()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	head := []string{"fits? ms a node: median (least-most)"}
	costs := []string{"a node: slices; KiB of JSON; of protobuf; objects for a taint"}
	for _, l := range all {
		head = append(head, l.name)
		c, err := costOf(l)
		if err != nil {
			b.Fatal(err)
		}
		costs = append(costs, fmt.Sprintf("%d; %d; %d; %d", c.slices, c.json>>10, c.protobuf>>10, c.rewritten))
	}
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for i, s := range schedulings() {
		fmt.Fprintln(w, s.name+"\t"+strings.Join(cells[i], "\t"))
	}
	fmt.Fprintln(w, strings.Join(costs, "\t"))
}
