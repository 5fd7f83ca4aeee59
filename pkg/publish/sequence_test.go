package publish_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// randomNode is a node as it may be at some moment: GPUs with their audio and NICs with VFs, any of which may be
// gone, in groups at random, by a config that takes any of the types.
func randomNode(t *testing.T, r *rand.Rand) *publish.Node {
	t.Helper()
	var functions []device.Function
	group := func() int { return r.IntN(12) }
	for bus := range 3 {
		if r.IntN(4) > 0 {
			functions = append(functions, function(t, fmt.Sprintf("0000:%02x:00.0", bus+1), 0x030200, group()))
		}
		if r.IntN(3) == 0 {
			functions = append(functions, function(t, fmt.Sprintf("0000:%02x:00.1", bus+1), 0x040300, group()))
		}
	}
	for bus := range 2 {
		if r.IntN(5) > 0 {
			functions = append(functions, pfWith(t, fmt.Sprintf("0000:%02x:00.0", bus+0x21), 4, r.IntN(5), group())...)
		}
	}
	if r.IntN(4) > 0 {
		functions = append(functions, function(t, "0000:08:00.0", crypto, group()))
	}
	n := nodeOf(functions...)
	var types []string
	for _, name := range []string{"gpu", "pf", "vf", "accelerator", "other"} {
		if r.IntN(4) > 0 {
			types = append(types, name)
		}
	}
	choose(n, &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: types}}}})
	return n
}

// published is where each device stands.
func published(pools map[string]publish.Pool) map[publish.Allocated]resourceapi.Device {
	all := map[publish.Allocated]resourceapi.Device{}
	for pool, p := range pools {
		for _, s := range p.Slices {
			for _, d := range s.Devices {
				all[publish.Allocated{Pool: pool, Name: d.Name}] = d
			}
		}
	}
	return all
}

func isWithdrawn(d resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == publish.TaintWithdrawn })
}

func isGone(d resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == publish.TaintWithdrawn && t.Value == "Gone" })
}

// firstFunction returns the address that a device is at.
func firstFunction(t *testing.T, name string) pci.Address {
	t.Helper()
	parts, err := device.ParseParts(name)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0].Address
}

// TestNothingAllocatedIsEverDropped, whatever happens to the node, in whichever order: what the scheduler may have allocated
// stands where it stood, and nobody is offered what shares hardware with it out of reach of its counters.
func TestNothingAllocatedIsEverDropped(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 9))
	devices := 0
	for range 400 {
		var held, before []publish.Allocated
		var last map[publish.Allocated]resourceapi.Device
		for range 8 {
			n := randomNode(t, r)
			n.Allocated, n.Lingering, n.Consumed = held, before, consumption(last)
			pools := publish.Pools(n)
			if diff := cmp.Diff(pools, publish.Pools(n)); diff != "" {
				t.Fatalf("the same node publishes other slices (-want as at first +got then):\n%s", diff)
			}
			now := published(pools)
			devices += len(now)
			for _, a := range slices.Concat(held, before) {
				if _, there := now[a]; !there {
					t.Fatalf("%v was dropped, want it published: allocated %v, lingering %v", a, held, before)
				}
			}
			unmet(t, n, held, now)
			keepTheirCounters(t, held, before, last, now)
			overcommitted(t, pools, held, last, now)
			pfBesideVF(t, pools, held, now)
			held, before = next(r, held, now, roomIn(pools, held, now))
			last = now
		}
	}
	t.Logf("%d devices", devices)
}

// consumption is what each device consumes.
func consumption(all map[publish.Allocated]resourceapi.Device) map[publish.Allocated][]resourceapi.DeviceCounterConsumption {
	consumed := map[publish.Allocated][]resourceapi.DeviceCounterConsumption{}
	for a, d := range all {
		consumed[a] = d.ConsumesCounters
	}
	return consumed
}

// keepTheirCounters checks that what may be allocated and is not on offer, or is a claim's, consumes what it did of
// units. A PF and its VFs have a counter only together: see pfBesideVF.
func keepTheirCounters(t *testing.T, held, lingering []publish.Allocated, last, now map[publish.Allocated]resourceapi.Device) {
	t.Helper()
	for _, a := range slices.Concat(held, lingering) {
		if !slices.Contains(held, a) && !isWithdrawn(now[a]) {
			continue
		}
		for _, was := range last[a].ConsumesCounters {
			if strings.HasPrefix(was.CounterSet, "pf-") {
				continue
			}
			if !slices.ContainsFunc(now[a].ConsumesCounters, func(c resourceapi.DeviceCounterConsumption) bool { return equality.Semantic.DeepEqual(c, was) }) {
				t.Fatalf("%v consumes %v, want %v as before", a, now[a].ConsumesCounters, was)
			}
		}
	}
}

// room is what the scheduler has left of each counter, by pool, set and counter.
type room map[string]int64

func roomIn(pools map[string]publish.Pool, held []publish.Allocated, now map[publish.Allocated]resourceapi.Device) room {
	left := room{}
	for pool, p := range pools {
		for _, s := range p.Slices {
			for _, set := range s.SharedCounters {
				for name, v := range set.Counters {
					left[pool+" "+set.Name+" "+name] = v.Value.Value()
				}
			}
		}
	}
	for _, a := range held {
		left.take(a, now[a])
	}
	return left
}

// take takes what a device consumes, and reports whether it was there.
func (left room) take(a publish.Allocated, d resourceapi.Device) bool {
	enough := true
	for _, c := range d.ConsumesCounters {
		for name, v := range c.Counters {
			key := a.Pool + " " + c.CounterSet + " " + name
			left[key] -= v.Value.Value()
			enough = enough && left[key] >= 0
		}
	}
	return enough
}

// overcommitted looks for devices that the scheduler would give away beside an allocated one that is gone and with which they
// shared a unit. Of two that are there the node's layout says whether they do. A VF has two counters, which is what the API
// allows: its PF's and one unit's, that of a device which is there if there are two.
func overcommitted(t *testing.T, pools map[string]publish.Pool, held []publish.Allocated, last, now map[publish.Allocated]resourceapi.Device) {
	t.Helper()
	left := roomIn(pools, held, now)
	for a, d := range now {
		if isWithdrawn(d) || slices.Contains(held, a) || len(d.ConsumesCounters) == 2 && strings.HasPrefix(a.Name, "vf-") || !maps.Clone(left).take(a, d) {
			continue
		}
		for _, h := range held {
			if a.Pool == h.Pool && isGone(now[h]) && shared(last[a], last[h]) {
				t.Fatalf("%v is on offer, want it withdrawn: it shared a unit with %v: %v, %v", a, h, d.ConsumesCounters, now[h].ConsumesCounters)
			}
		}
	}
}

// pfBesideVF looks for PFs that the scheduler would give away beside an allocated VF of theirs, there or gone, and the reverse.
func pfBesideVF(t *testing.T, pools map[string]publish.Pool, held []publish.Allocated, now map[publish.Allocated]resourceapi.Device) {
	t.Helper()
	left := roomIn(pools, held, now)
	for a, d := range now {
		if isWithdrawn(d) || slices.Contains(held, a) || !maps.Clone(left).take(a, d) {
			continue
		}
		for _, h := range held {
			if mine, its := firstFunction(t, a.Name), firstFunction(t, h.Name); pfOf(mine) == its || pfOf(its) == mine {
				t.Fatalf("%v is on offer, want it withdrawn: %v is allocated, and one is the other's PF", a, h)
			}
		}
	}
}

// shared reports whether two devices consumed the counter of one unit.
func shared(a, b resourceapi.Device) bool {
	return slices.ContainsFunc(a.ConsumesCounters, func(c resourceapi.DeviceCounterConsumption) bool {
		return strings.HasPrefix(c.CounterSet, "unit-") &&
			slices.ContainsFunc(b.ConsumesCounters, func(o resourceapi.DeviceCounterConsumption) bool { return o.CounterSet == c.CounterSet })
	})
}

// unmet looks for devices on offer that share a unit with an allocated one and no counter.
func unmet(t *testing.T, n *publish.Node, held []publish.Allocated, now map[publish.Allocated]resourceapi.Device) {
	t.Helper()
	l := device.NewLayout(n.Snapshot)
	for _, h := range held {
		for a, d := range now {
			if slices.Contains(held, a) || isWithdrawn(d) || isWithdrawn(now[h]) || l.Unit(firstFunction(t, a.Name)) != l.Unit(firstFunction(t, h.Name)) {
				continue
			}
			if a.Pool != h.Pool {
				t.Fatalf("%v is on offer, want it withdrawn: %v of its unit is allocated in another pool", a, h)
			}
		}
	}
}

// next allocates and releases devices at random. What is on offer and not allocated lingers.
func next(r *rand.Rand, held []publish.Allocated, now map[publish.Allocated]resourceapi.Device, left room) (allocated, lingering []publish.Allocated) {
	allocated = slices.DeleteFunc(slices.Clone(held), func(publish.Allocated) bool { return r.IntN(4) == 0 })
	taken := map[string]bool{}
	for _, a := range held {
		taken[a.Name] = true
	}
	keys := make([]publish.Allocated, 0, len(now))
	for a := range now {
		keys = append(keys, a)
	}
	slices.SortFunc(keys, publish.Allocated.Compare)
	for _, a := range keys {
		switch d := now[a]; {
		case isWithdrawn(d):
		case r.IntN(5) == 0 && !taken[a.Name] && left.take(a, d):
			allocated = append(allocated, a)
		default:
			lingering = append(lingering, a)
		}
	}
	return allocated, lingering
}
