package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// layout is one way to publish the same node.
type layout struct {
	name  string
	pools map[string]publish.Pool
}

// layouts are what is published, and what could be instead.
func layouts(vfs int) []layout {
	singles := publish.Pools(fleet.Node(fleet.Name(0), vfs, nil))
	pairs := publish.Pools(fleet.Node(fleet.Name(0), vfs, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}))
	return []layout{
		{"singles", singles},
		{"pairs", pairs},
		{"pool a root", poolPerRoot(singles)},
		{"pairs beside VFs", pairsBeside(poolPerRoot(singles))},
	}
}

// attr returns a device's attribute as text; empty if it has none.
func attr(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	if a := d.Attributes[name]; a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// devicesOf returns the devices of pools in the pools' and their own order.
func devicesOf(pools map[string]publish.Pool) []resourceapi.Device {
	var all []resourceapi.Device
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, s := range pools[name].Slices {
			all = append(all, s.Devices...)
		}
	}
	return all
}

// newPool returns devices and counters in as few slices as there may be.
func poolOf(devices []resourceapi.Device, sets []resourceapi.CounterSet) publish.Pool {
	var p publish.Pool
	for chunk := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		p.Slices = append(p.Slices, publish.Slice{Devices: chunk})
	}
	for chunk := range slices.Chunk(sets, resourceapi.ResourceSliceMaxCounterSets) {
		p.Slices = append(p.Slices, publish.Slice{SharedCounters: chunk})
	}
	return p
}

// poolPerRoot puts a GPU into one pool with the NIC under its root.
func poolPerRoot(singles map[string]publish.Pool) map[string]publish.Pool {
	byRoot := map[string][]resourceapi.Device{}
	for _, d := range devicesOf(singles) {
		root := attr(&d, publish.AttrPCIeRoot)
		byRoot[root] = append(byRoot[root], d)
	}
	pools := map[string]publish.Pool{fleet.Name(0): {Slices: []publish.Slice{{}}}}
	for _, root := range slices.Sorted(maps.Keys(byRoot)) {
		pools[fleet.Name(0)+"/"+strings.ReplaceAll(root, ":", "-")] = poolOf(byRoot[root], nil)
	}
	return pools
}

// pairsBeside adds to each root's pool a pair of its GPU and its last VF, which the scheduler gives away either as
// the pair or one by one.
func pairsBeside(pools map[string]publish.Pool) map[string]publish.Pool {
	for name, p := range pools {
		devices := slices.Clone(p.Slices[0].Devices)
		if len(devices) == 0 {
			continue
		}
		gpu := slices.IndexFunc(devices, func(d resourceapi.Device) bool { return attr(&d, publish.AttrType) == "gpu" })
		vf := len(devices) - 1
		use := func(counters ...string) resourceapi.DeviceCounterConsumption {
			return resourceapi.DeviceCounterConsumption{CounterSet: "unit", Counters: ones(counters...)}
		}
		pair := devices[gpu]
		pair.Name = "pair-" + pair.Name
		pair.Attributes = maps.Clone(pair.Attributes)
		pair.Attributes[publish.AttrType] = resourceapi.DeviceAttribute{StringValue: new("gpu-vf")}
		pair.Attributes["vf"] = devices[vf].Attributes[publish.AttrPCIBusID]
		pair.ConsumesCounters = append(slices.Clone(devices[vf].ConsumesCounters), use("use", "partner"))
		devices[gpu].ConsumesCounters = []resourceapi.DeviceCounterConsumption{use("use")}
		devices[vf].ConsumesCounters = append(slices.Clone(devices[vf].ConsumesCounters), use("partner"))
		sets := []resourceapi.CounterSet{{Name: "unit", Counters: ones("use", "partner")}}
		pools[name] = poolOf(append(devices, pair), sets)
	}
	return pools
}

func ones(names ...string) map[string]resourceapi.Counter {
	all := map[string]resourceapi.Counter{}
	for _, name := range names {
		all[name] = resourceapi.Counter{Value: *resource.NewQuantity(1, resource.DecimalSI)}
	}
	return all
}

// cost is what a layout costs the cluster, for one node.
type cost struct{ slices, json, protobuf, rewritten int }

// costOf counts; rewritten is how many objects are written when the last VF of the first PF is tainted.
func costOf(l layout) (c cost, err error) {
	vf := fleet.LastVF(0, simulatedVFs)
	for _, p := range l.pools {
		c.rewritten += rewritten(p, func(d *resourceapi.Device) bool {
			return attr(d, publish.AttrPCIBusID) == vf || attr(d, "vf") == vf
		})
	}
	for _, s := range fleet.Slices(l.pools, fleet.Name(0), fleet.Name(0)) {
		text, err := json.Marshal(s)
		if err != nil {
			return c, fmt.Errorf("encode slice %s: %w", s.Name, err)
		}
		c.slices++
		c.json += len(text)
		c.protobuf += s.Size()
	}
	return c, nil
}

// rewritten returns how many objects of a pool are written when the devices change: one, or the whole pool with its new
// generation where they stand in more than one slice.
func rewritten(p publish.Pool, changes func(d *resourceapi.Device) bool) int {
	n := 0
	for _, s := range p.Slices {
		if slices.ContainsFunc(s.Devices, func(d resourceapi.Device) bool { return changes(&d) }) {
			n++
		}
	}
	if n > 1 {
		return len(p.Slices)
	}
	return n
}
