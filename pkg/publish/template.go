package publish

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Template returns the pools of a node like this one that does not exist yet, for an autoscaler that scales a group of nodes from zero. The
// pools have what all nodes of one kind have in common: devices and counters whose names contain no addresses, and the attributes and
// capacities that isStable accepts. They have nothing of this node's state: no taints, no claims, no lingering devices. Template is pure:
// the same node gives the same pools.
func Template(n *Node) map[string]Pool {
	fresh := &Node{Name: n.Name, Snapshot: n.Snapshot, Selection: n.Selection, Assessments: map[pci.Address]plan.Assessment{}}
	pools := Pools(fresh)
	// All names first: a device consumes a counter set of another slice.
	names := renamed{}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for _, s := range pools[pool].Slices {
			names.add(s)
		}
	}
	all := make(map[string]Pool, len(pools))
	nics := 0
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		as := name
		if _, ok := device.PFOfPool(name); ok {
			as = fmt.Sprintf("%s/nic-%d", device.NodePool(n.Name), nics)
			nics++
		}
		var p Pool
		for _, s := range pools[name].Slices {
			p.Slices = append(p.Slices, names.slice(s))
		}
		all[as] = p
	}
	return all
}

// isStable reports whether an attribute or a capacity is the same on all nodes of a kind: whether it describes the board and its cards, and
// not the state of one boot. AttrIsolated is not stable, because it depends on the settings of the firmware and the kernel.
func isStable(name resourceapi.QualifiedName) bool {
	switch name {
	case AttrType, AttrVendor, AttrDevice, AttrModel, AttrBoundary, AttrProfile, AttrLinkSpeed, AttrNUMANode, AttrPCIeRoot, AttrSharedWith, CapacityMemory, AttrFabricSize, AttrFabricLinks, CapacityGPUs:
		return true
	}
	return false
}

// renamed maps the names of devices and counter sets, which contain addresses, to the names that the template has for them: "gpu-0",
// "vf-3", "set-1".
type renamed struct {
	devices, sets map[string]string
	count         map[string]int
}

func (r *renamed) add(s Slice) {
	if r.count == nil {
		r.devices, r.sets, r.count = map[string]string{}, map[string]string{}, map[string]int{}
	}
	for i := range s.Devices {
		kind := string(device.Other)
		if text := s.Devices[i].Attributes[AttrType].StringValue; text != nil {
			kind = *text
		}
		r.devices[s.Devices[i].Name] = r.next(kind)
	}
	for i := range s.SharedCounters {
		r.sets[s.SharedCounters[i].Name] = r.next("set")
	}
}

func (r *renamed) next(kind string) string {
	name := fmt.Sprintf("%s-%d", kind, r.count[kind])
	r.count[kind]++
	return name
}

// slice returns a copy of s with the template's names and only the stable attributes and capacities of its devices.
func (r *renamed) slice(s Slice) Slice {
	var t Slice
	for i := range s.Devices {
		d := s.Devices[i]
		d.Name, d.Taints = r.devices[d.Name], nil
		d.Attributes, d.Capacity = stable(d.Attributes), stable(d.Capacity)
		d.ConsumesCounters = slices.Clone(d.ConsumesCounters)
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CounterSet = r.sets[d.ConsumesCounters[j].CounterSet]
		}
		t.Devices = append(t.Devices, d)
	}
	for _, set := range s.SharedCounters {
		set.Name = r.sets[set.Name]
		t.SharedCounters = append(t.SharedCounters, set)
	}
	return t
}

// stable returns the stable ones of the attributes or capacities; nil if there are none.
func stable[V any](all map[resourceapi.QualifiedName]V) map[resourceapi.QualifiedName]V {
	var kept map[resourceapi.QualifiedName]V
	for name, v := range all {
		if !isStable(name) {
			continue
		}
		if kept == nil {
			kept = map[resourceapi.QualifiedName]V{}
		}
		kept[name] = v
	}
	return kept
}
