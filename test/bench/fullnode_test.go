package bench

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// fullVFs is what each PF of a full node has.
const fullVFs = 128

func fullNode() *publish.Node {
	return fleet.Node(fleet.Name(0), fullVFs, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch})
}

// written returns how many objects the controller of the kubelet's plugin library writes for a change, pool by pool: the
// changed slice, or all where more than one changed or their number did.
func written(before, after map[string]publish.Pool) map[string]int {
	all := map[string]int{}
	for name, p := range after {
		changed := 0
		for i := range p.Slices {
			if len(before[name].Slices) != len(p.Slices) || !reflect.DeepEqual(before[name].Slices[i], p.Slices[i]) {
				changed++
			}
		}
		if changed > 1 {
			changed = len(p.Slices)
		}
		if changed > 0 {
			all[name] = changed
		}
	}
	return all
}

// A change is written to the pool that it concerns, and to one slice of it unless the order changes.
func TestChangeOfAFullNodeIsWrittenToItsPool(t *testing.T) {
	gpu, vf, kept := pci.Address{Bus: 0x12}, pci.Address{Bus: 0x14, Device: 8}, pci.Address{Bus: 0x14, Device: 15, Function: 7}
	const nics = "node-0000/kata-vfio.dev/pf-0000-13-00-0"
	if kept.String() != fleet.LastVF(0, fullVFs) {
		t.Fatalf("the last VF is %s, not %s", fleet.LastVF(0, fullVFs), kept)
	}
	sick := func(a pci.Address) func(n *publish.Node) {
		return func(n *publish.Node) {
			n.Assessments[a] = plan.Assessment{Isolation: n.Assessments[a].Isolation, Refusals: []rule.Verdict{{Code: rule.Quarantined}}}
		}
	}
	for name, test := range map[string]struct {
		change func(n *publish.Node)
		want   map[string]int
	}{
		"a VF is tainted":                   {sick(vf), map[string]int{nics: 1}},
		"a GPU is tainted, and so its pair": {sick(gpu), map[string]int{"node-0000/kata-vfio.dev": 1}},
		"a pair's VF is tainted":            {sick(kept), map[string]int{"node-0000/kata-vfio.dev": 1}},
		"a VF is allocated": {
			func(n *publish.Node) { n.Allocated = []publish.Allocated{{Pool: nics, Name: "vf-0000-14-08-0"}} }, map[string]int{},
		},
		"a pair is allocated": {
			func(n *publish.Node) {
				n.Allocated = []publish.Allocated{{Pool: "node-0000/kata-vfio.dev", Name: "gpu-0000-12-00-0-vf-0000-14-0f-7"}}
			}, map[string]int{},
		},
		"a VF is isolated no more, and goes last": {
			func(n *publish.Node) {
				reason := rule.Verdict{Code: rule.NoReset, Severity: rule.High}
				n.Assessments[pci.Address{Bus: 0x14}] = plan.Assessment{Isolation: isolation.Judgment{Reasons: []rule.Verdict{reason}}}
			},
			map[string]int{nics: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := fullNode()
			test.change(n)
			if got := written(publish.Pools(fullNode()), publish.Pools(n)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("written: %v, want %v", got, test.want)
			}
		})
	}
}

// BenchmarkFullNode publishes a node with 8 GPUs and 8 PFs of 128 VFs each, allocates of it, and updates it.
func BenchmarkFullNode(b *testing.B) {
	var publishing, first, last time.Duration
	var pools map[string]publish.Pool
	rounds := 0
	for b.Loop() {
		rounds++
		n := fullNode()
		publishing += timed(func() { pools = publish.Pools(n) })
		all := fleet.Slices(pools, n.Name, n.Name)
		one := asking(requestFor("vf", "vf", 1))
		free := allocatorOf(b, all, cel.NewCache(10, cel.Features{}), func(*resourceapi.Device) bool { return false })
		first += timed(func() { mustAllocate(b, free, n.Name, one) })
		lastVF := "vf-0000-84-0f-6" // after it comes the one that is kept
		full := allocatorOf(b, all, cel.NewCache(10, cel.Features{}), func(d *resourceapi.Device) bool { return d.Name != lastVF })
		last += timed(func() { mustAllocate(b, full, n.Name, one) })
	}
	text, err := json.Marshal(pools)
	if err != nil {
		b.Fatal(err)
	}
	slices := len(fleet.Slices(pools, fleet.Name(0), fleet.Name(0)))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(milliseconds(publishing)/float64(rounds), "ms-publish")
	b.ReportMetric(milliseconds(first)/float64(rounds), "ms-first-VF")
	reportAim(b, milliseconds(last)/float64(rounds), "ms-last-VF", 20)
	b.ReportMetric(float64(slices), "slices")
	fmt.Printf("8 GPUs, 8 PFs of %d VFs: %d pools, %d slices, %d KiB of JSON\n", fullVFs, len(pools), slices, len(text)>>10)
}

func mustAllocate(b *testing.B, a structured.Allocator, node string, c *resourceapi.ResourceClaim) {
	b.Helper()
	if devices, err := allocate(b, a, node, c); err != nil || len(devices) != 1 {
		b.Fatalf("on %s: %v, %v", node, devices, err)
	}
}
