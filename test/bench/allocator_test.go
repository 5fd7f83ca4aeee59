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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// simulatedNodes is the size of the cluster in which claims are scheduled.
func simulatedNodes() int { return sized(1000, 2) }

// filterTimeout is the scheduler's limit for one node (KubeSchedulerConfiguration, filterTimeout of DynamicResources).
func filterTimeout() time.Duration { return sized(10*time.Second, 100*time.Millisecond) }

const (
	// simulatedVFs is what each PF has in that cluster.
	simulatedVFs = 16
	// caseTime bounds a case: what is slow is tried on fewer nodes.
	caseTime = time.Second
)

// simulation is a cluster of nodes in one layout.
type simulation struct {
	slices []*resourceapi.ResourceSlice
	cache  *cel.Cache
}

func newSimulation(l layout) *simulation {
	c := &simulation{cache: cel.NewCache(10, cel.Features{})}
	for i := range simulatedNodes() {
		c.slices = append(c.slices, fleet.Slices(l.pools, fleet.Name(0), fleet.Name(i))...)
	}
	return c
}

// has reports whether the nodes have a device of the class.
func (c *simulation) has(class string) bool {
	ofClass := func(d resourceapi.Device) bool { return attr(&d, publish.AttrType) == class }
	return slices.ContainsFunc(c.slices[:len(c.slices)/simulatedNodes()], func(s *resourceapi.ResourceSlice) bool {
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
	for i, begin := 0, time.Now(); i < simulatedNodes() && (i == 0 || time.Since(begin) < caseTime); i++ {
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
	if len(took) < simulatedNodes() {
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
	a, err := structured.NewAllocator(tb.Context(), features, state, classes{"gpu", "vf", "pf", "gpu-vf", "gpu-x2", "gpu-slice"}, all, cache)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// allocate returns the devices that the claim gets on the node; none if it doesn't fit.
func allocate(tb testing.TB, a structured.Allocator, node string, c *resourceapi.ResourceClaim) ([]string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), filterTimeout())
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
