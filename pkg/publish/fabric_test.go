package publish_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const fabricPool = "worker-1/kata-vfio.dev"

// joined is a node with an HGX H100 board whose partitions are known.
func joined(t testing.TB) *publish.Node {
	t.Helper()
	var functions []device.Function
	for i, bus := range fabrictest.Buses() {
		f := hopper(t, fmt.Sprintf("0000:%02x:00.0", bus), i+1)
		f.NUMANode = new(i / 4)
		functions = append(functions, f)
	}
	n := nodeOf(functions...)
	n.Snapshot.Host.Fabric = facts(t, fabric.State{Partitions: fabrictest.H100()})
	withFabric(n)
	return n
}

func facts(t testing.TB, s fabric.State) device.FabricFacts {
	t.Helper()
	state, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := json.Marshal(fabrictest.Map("HGX", fabrictest.Buses()...))
	if err != nil {
		t.Fatal(err)
	}
	return device.FabricFacts{State: string(state), Modules: string(modules), Product: "HGX", Driver: "570.172.08"}
}

func withFabric(n *publish.Node, change ...func(*v1alpha1.NodeConfig)) {
	cfg := everything()
	cfg.Fabric = &v1alpha1.Fabric{}
	for _, f := range change {
		f(cfg)
	}
	choose(n, cfg)
}

// keep has the node know what its devices consume, as the next Publish does.
func keep(n *publish.Node, pools map[string]publish.Pool) {
	n.Consumed = map[publish.Allocated][]resourceapi.DeviceCounterConsumption{}
	for name, p := range pools {
		for _, s := range p.Slices {
			for _, d := range s.Devices {
				n.Consumed[publish.Allocated{Pool: name, Name: d.Name}] = d.ConsumesCounters
			}
		}
	}
}

// TestPartitionsAreDevices over one set of counters, within the API's limits, with what all their GPUs have.
func TestPartitionsAreDevices(t *testing.T) {
	n := joined(t)
	pools := publish.Pools(n)
	checkPools(t, pools)
	wantVocabulary(t, pools[fabricPool])
	want := []string{
		"gpu-0000-86-00-0", "gpu-0000-87-00-0", "gpu-0000-b8-00-0", "gpu-0000-bb-00-0", "gpu-0000-0f-00-0", "gpu-0000-10-00-0", "gpu-0000-41-00-0", "gpu-0000-44-00-0",
		"gpu-x2-0000-86-87", "gpu-x2-0000-b8-bb", "gpu-x2-0000-0f-10", "gpu-x2-0000-41-44", "gpu-x4-0000-0f-10-41-44", "gpu-x4-0000-86-87-b8-bb",
		"gpu-x8-0000-0f-10-41-44-86-87-b8-bb",
	}
	if diff := cmp.Diff(want, names(pools[fabricPool])); diff != "" {
		t.Errorf("devices in order (-want +got):\n%s", diff)
	}
	sets := pools[fabricPool].Slices[1].SharedCounters
	if len(sets) != 1 || sets[0].Name != "fabric-0000-86-00-0" || len(sets[0].Counters) != 8 {
		t.Errorf("sets %+v, want one of the board with a counter for each GPU", sets)
	}
	for name, want := range map[string]struct {
		kind, numa string
		size       int64
		links      int64
		memory     string
	}{
		"gpu-0000-86-00-0":                    {"gpu", "0", 1, 18, "80Gi"},
		"gpu-x2-0000-86-87":                   {"gpu-partition", "0", 2, 18, "160Gi"},
		"gpu-x8-0000-0f-10-41-44-86-87-b8-bb": {"gpu-partition", "-", 8, 18, "640Gi"},
	} {
		d := deviceNamed(pools, name)
		numa := "-"
		if v := d.Attributes[publish.AttrNUMANode].IntValue; v != nil {
			numa = fmt.Sprint(*v)
		}
		memory, gpus := d.Capacity[publish.CapacityMemory].Value, d.Capacity[publish.CapacityGPUs].Value
		if *d.Attributes[publish.AttrType].StringValue != want.kind || numa != want.numa || *d.Attributes[publish.AttrFabricSize].IntValue != want.size ||
			*d.Attributes[publish.AttrFabricLinks].IntValue != want.links ||
			*d.Attributes[publish.AttrFabricVersion].StringValue != "570.172.08" || memory.String() != want.memory || gpus.Value() != want.size {
			t.Errorf("%s: %+v %+v, want %+v", name, d.Attributes, d.Capacity, want)
		}
		if !*d.Attributes[publish.AttrIsolated].BoolValue || len(d.Taints) > 0 {
			t.Errorf("%s: isolated %v, taints %v; want it isolated, without a taint", name, d.Attributes[publish.AttrIsolated], d.Taints)
		}
	}
}

// TestLinksAsListed: those of the GPU with the fewest, and no attribute where Fabric Manager lists none.
func TestLinksAsListed(t *testing.T) {
	n := joined(t)
	l := fabrictest.H100()
	l[3].GPUs[1].Links = 17 // of the partition of modules 1 and 3
	l[7].GPUs[0].Links = 0  // of that of module 1 alone
	n.Snapshot.Host.Fabric = facts(t, fabric.State{Partitions: l})
	withFabric(n)
	got := map[string]int64{}
	for _, name := range []string{"gpu-x2-0000-86-87", "gpu-0000-86-00-0", "gpu-0000-87-00-0"} {
		got[name] = -1
		if v := deviceNamed(publish.Pools(n), name).Attributes[publish.AttrFabricLinks].IntValue; v != nil {
			got[name] = *v
		}
	}
	if diff := cmp.Diff(map[string]int64{"gpu-x2-0000-86-87": 17, "gpu-0000-86-00-0": -1, "gpu-0000-87-00-0": 18}, got); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

// TestPartitionHasTheWorstOfItsGPUs: one that is not isolated taints all partitions that it is in, and no other.
func TestPartitionHasTheWorstOfItsGPUs(t *testing.T) {
	n := joined(t)
	blemish(n, addr(t, "0000:87:00.0"), rule.NoInterruptRemapping, rule.High)
	for name, tainted := range map[string]bool{"gpu-x2-0000-86-87": true, "gpu-x8-0000-0f-10-41-44-86-87-b8-bb": true, "gpu-x2-0000-b8-bb": false, "gpu-0000-86-00-0": false} {
		d := deviceNamed(publish.Pools(n), name)
		if got := len(d.Taints) > 0; got != tainted || *d.Attributes[publish.AttrIsolated].BoolValue == tainted {
			t.Errorf("%s has taints %v, isolated %t; want some: %t", name, d.Taints, *d.Attributes[publish.AttrIsolated].BoolValue, tainted)
		}
	}
}

// TestQuotaCountersOfPartitions count GPUs, not devices.
func TestQuotaCountersOfPartitions(t *testing.T) {
	n := joined(t)
	withFabric(n, func(c *v1alpha1.NodeConfig) { c.QuotaCounters = true })
	pools := publish.Pools(n)
	checkPools(t, pools)
	counter := func(counters map[string]resourceapi.Counter, name string) string {
		q := counters[name].Value
		return q.String()
	}
	set := pools[fabricPool].Slices[1].SharedCounters[0].Counters
	if counter(set, "gpus") != "8" || counter(set, "memory") != "640Gi" {
		t.Errorf("the board has %s GPUs and %s, want 8 and 640Gi", counter(set, "gpus"), counter(set, "memory"))
	}
	use := deviceNamed(pools, "gpu-x4-0000-86-87-b8-bb").ConsumesCounters[0].Counters
	if counter(use, "gpus") != "4" || counter(use, "memory") != "320Gi" {
		t.Errorf("a partition of four uses %s GPUs and %s, want 4 and 320Gi", counter(use, "gpus"), counter(use, "memory"))
	}
}

// TestSchedulerKeepsPartitionsApart by the scheduler's own code, over random claims and ends: no two devices that are allocated share a
// GPU, and what is not held can be allocated.
func TestSchedulerKeepsPartitionsApart(t *testing.T) {
	n := joined(t)
	random := rand.New(rand.NewPCG(1, 2))
	cache := cel.NewCache(10, cel.Features{})
	given, none := 0, 0
	for range 120 {
		pools := publish.Pools(n)
		checkPools(t, pools)
		keep(n, pools)
		size := []int{1, 1, 2, 2, 4, 8}[random.IntN(6)]
		got := allocateFrom(t, cache, resourceSlices(pools), n.Allocated, claimForSize(size))
		if len(got) == 0 {
			none++
		} else {
			given++
			n.Allocated = append(n.Allocated, got...)
		}
		if had := gpusOf(t, n.Allocated); len(slices.Compact(slices.Sorted(slices.Values(had)))) != len(had) {
			t.Fatalf("%v were allocated with GPUs %v, want each GPU once", n.Allocated, had)
		}
		for i := range slices.Backward(n.Allocated) {
			if random.IntN(3) == 0 {
				n.Allocated = slices.Delete(n.Allocated, i, i+1)
			}
		}
	}
	if given < 40 || none < 10 {
		t.Errorf("%d claims got a device and %d none, want at least 40 and 10", given, none)
	}
}

// claimForSize asks for a single GPU, or for a partition.
func claimForSize(size int) *resourceapi.ResourceClaim {
	if size == 1 {
		return claimFor("gpu")
	}
	c := claimFor("gpu-partition")
	c.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.attributes["kata-vfio.dev"].?fabricSize.orValue(0) == %d`, size),
	}}}
	return c
}

func gpusOf(t *testing.T, devices []publish.Allocated) []string {
	t.Helper()
	var all []string
	for _, d := range devices {
		parts, err := device.ParseParts(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			all = append(all, p.Name)
		}
	}
	return all
}

// TestFabricThatIsNew next to a claim from before: its GPU goes on with its own set, no partition with that GPU is offered, and the other
// ones are. When the claim ends, all are.
func TestFabricThatIsNew(t *testing.T) {
	n := joined(t)
	choose(n, everything())
	keep(n, publish.Pools(n))
	before := n.Consumed
	n.Allocated = []publish.Allocated{{Pool: fabricPool, Name: "gpu-0000-86-00-0"}}
	withFabric(n)
	pools := publish.Pools(n)
	checkPools(t, pools)
	for name, want := range map[string]bool{"gpu-0000-86-00-0": true, "gpu-x2-0000-86-87": false, "gpu-x8-0000-0f-10-41-44-86-87-b8-bb": false, "gpu-x2-0000-b8-bb": true, "gpu-0000-87-00-0": true} {
		if got := deviceNamed(pools, name) != nil; got != want {
			t.Errorf("%s is published: %t, want %t", name, got, want)
		}
	}
	if diff := cmp.Diff(before[n.Allocated[0]], deviceNamed(pools, "gpu-0000-86-00-0").ConsumesCounters); diff != "" {
		t.Errorf("what the claim consumes (-want as before +got now):\n%s", diff)
	}
	n.Allocated = nil
	keep(n, pools)
	if deviceNamed(publish.Pools(n), "gpu-x2-0000-86-87") == nil {
		t.Error("after the claim the partition is not published")
	}
}

// TestFabricThatEnds beside a claim with a partition: the partition stays, withdrawn, and its GPUs are not offered alone.
func TestFabricThatEnds(t *testing.T) {
	n := joined(t)
	keep(n, publish.Pools(n))
	n.Allocated = []publish.Allocated{{Pool: fabricPool, Name: "gpu-x2-0000-86-87"}}
	for name, change := range map[string]func(){
		"no fabric in the config": func() { choose(n, everything()) },
		"no list":                 func() { n.Snapshot.Host.Fabric.State = ""; withFabric(n) },
	} {
		change()
		pools := publish.Pools(n)
		checkPools(t, pools)
		d := deviceNamed(pools, "gpu-x2-0000-86-87")
		if d == nil || len(d.Taints) == 0 || d.Taints[0].Key != publish.TaintWithdrawn || !strings.HasPrefix(d.ConsumesCounters[0].CounterSet, "fabric-") {
			t.Fatalf("%s: the partition is %+v, want it withdrawn, with counters of the fabric", name, d)
		}
		if deviceNamed(pools, "gpu-0000-86-00-0") != nil || deviceNamed(pools, "gpu-0000-b8-00-0") == nil {
			t.Errorf("%s: published are %v, want gpu-0000-b8-00-0, and no gpu-0000-86-00-0", name, names(pools[fabricPool]))
		}
	}
}

// TestGPUWithoutAPartition of its own is not offered alone.
func TestGPUWithoutAPartition(t *testing.T) {
	n := joined(t)
	n.Snapshot.Host.Fabric = facts(t, fabric.State{Partitions: fabrictest.H100()[:7]})
	withFabric(n)
	want := []string{"gpu-x2-0000-86-87", "gpu-x2-0000-b8-bb", "gpu-x2-0000-0f-10", "gpu-x2-0000-41-44", "gpu-x4-0000-0f-10-41-44", "gpu-x4-0000-86-87-b8-bb", "gpu-x8-0000-0f-10-41-44-86-87-b8-bb"}
	if diff := cmp.Diff(want, names(publish.Pools(n)[fabricPool])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
