package controller

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// gpusOfNode is how many shared GPUs a node of the benchmark has, each with a claim.
const gpusOfNode = 10

// scale is a controller whose caches have a cluster, and what that cost.
type scale struct {
	*Controller
	start  time.Duration
	memory uint64
}

// atScale has a controller read a cluster in which each GPU is shared, claimed and kept from the other driver by a rule.
func atScale(b testing.TB, nodes int) *scale {
	b.Helper()
	c, err := New(Config{
		Client: fake.NewClientset(), Drivers: []string{otherDriver}, Recorder: events.NewFakeRecorder(1), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.queue.ShutDown)
	c.config.Metrics.watch(c)
	before := inUse()
	began := time.Now()
	for i := range nodes {
		c.fill(b, fmt.Sprintf("node-%04d", i))
	}
	s := &scale{Controller: c, start: time.Since(began)}
	s.memory = inUse() - before
	return s
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill puts the objects of a node into the caches, as the informers do.
func (c *Controller) fill(b testing.TB, node string) {
	b.Helper()
	add := func(to cache.SharedIndexInformer, o any) {
		if err := to.GetIndexer().Add(o); err != nil {
			b.Fatal(err)
		}
	}
	var ours, theirs []resourceapi.Device
	pool := device.SharedPool(node)
	for i := range gpusOfNode {
		address := fmt.Sprintf("0000:%02x:00.0", 0x10+i)
		name, twinName := fmt.Sprintf("gpu-0000-%02x-00-0", 0x10+i), fmt.Sprintf("gpu-%d", i)
		d := deviceAt(name, address)
		d.Attributes["sharedWith"], d.Attributes["driver"] = stringAttribute(otherDriver), stringAttribute("vfio-pci")
		ours, theirs = append(ours, d), append(theirs, deviceAt(twinName, address))
		id := cluster.ID{Driver: v1alpha1.DriverName, Pool: pool, Name: name}
		target := cluster.ID{Driver: otherDriver, Pool: node, Name: twinName}
		claim := claimOf(node, id)
		add(c.informers.claims, claim)
		add(c.informers.rules, &resourceapi.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{
				Name: v1alpha1.TwinRuleName(target.Driver, target.Pool, target.Name), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
				Annotations: annotations(&twin.GPU{PCI: node + "/" + address}, id, string(claim.UID)),
			},
			Spec: ruleSpec(target, v1alpha1.TwinOurs),
		})
	}
	for i, s := range []*resourceapi.ResourceSlice{sliceOf(node+"-ours", v1alpha1.DriverName, pool, ours...), sliceOf(node+"-theirs", otherDriver, node, theirs...)} {
		s.Spec.NodeName = &node
		add(c.informers.slices[i], s)
	}
}

// claimOf is a claim that has a device and was answered.
func claimOf(node string, id cluster.ID) *resourceapi.ResourceClaim {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	name := node + "-" + id.Name
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{AllocationTimestamp: &now, NodeSelector: onNode(node)}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: id.Driver, Pool: id.Pool, Device: id.Name}}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: id.Driver, Pool: id.Pool, Device: id.Name,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionTwinReserved, Status: metav1.ConditionTrue, LastTransitionTime: now}},
	}}
	return c
}

// TestScrapeFindsEachGPU compares the GPUs of one node after the other with those of a view of the whole cluster, also of nodes that
// only a claim or a rule names.
func TestScrapeFindsEachGPU(t *testing.T) {
	c := atScale(t, 3)
	for _, one := range c.informers.slices {
		for _, o := range one.GetIndexer().List() {
			if s, ok := o.(*resourceapi.ResourceSlice); ok && *s.Spec.NodeName == "node-0001" {
				if err := one.GetIndexer().Delete(o); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	objects := c.informers.cached()
	whole := objects.whole(c.Controller)
	want := whole.GPUs(whole.Nodes()...)
	var got []*twin.GPU
	for _, node := range objects.nodes() {
		got = append(got, objects.on(c.Controller, node).GPUs(node)...)
	}
	unordered := cmpopts.SortSlices(func(a, b twin.Claim) bool { return a.UID < b.UID })
	if diff := cmp.Diff(want, got, unordered, cmpopts.EquateEmpty()); diff != "" || len(got) != 3*gpusOfNode {
		t.Errorf("%d GPUs (-whole +by node):\n%s", len(got), diff)
	}
}

// BenchmarkScale has a controller read, scrape and decide about clusters of 250 and of 1,000 nodes with ten claims each. What depends on the whole cluster
// is to cost four times as much in the second, and a decision about one node as much. With -short the clusters are small.
func BenchmarkScale(b *testing.B) {
	nodes := 1000
	if testing.Short() {
		nodes = 40
	}
	small, large := atScale(b, nodes/4), atScale(b, nodes)
	var scrape, decision [2]time.Duration
	for b.Loop() {
		for i, s := range []*scale{small, large} {
			began := time.Now()
			if _, err := s.config.Metrics.Registry.Gather(); err != nil {
				b.Fatal(err)
			}
			scrape[i] += time.Since(began)
			began = time.Now()
			view := s.informers.cached().on(s.Controller, "node-0007")
			gpus := view.GPUs("node-0007")
			for _, g := range gpus {
				twin.Decide(g, s.millis())
			}
			decision[i] += time.Since(began)
			if len(gpus) != gpusOfNode {
				b.Fatalf("the node has %d GPUs, want %d", len(gpus), gpusOfNode)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(large.start)/float64(small.start), "start-1000/250")
	b.ReportMetric(float64(large.memory)/float64(small.memory), "memory-1000/250")
	b.ReportMetric(float64(scrape[1])/float64(scrape[0]), "scrape-1000/250")
	b.ReportMetric(float64(decision[1])/float64(decision[0]), "decision-1000/250")
	b.ReportMetric(float64(large.memory)/(1<<20), "MiB-1000")
	b.ReportMetric(float64(scrape[1].Milliseconds())/float64(b.N), "ms-scrape-1000")
	b.ReportMetric(float64(large.start.Milliseconds()), "ms-start-1000")
}
