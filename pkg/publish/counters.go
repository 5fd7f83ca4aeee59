package publish

import (
	"iter"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Counters, and the prefixes of the names of their sets. A set's name ends in an address.
const (
	// The set of a PF counts its VFs. A VF consumes one, and the PF all of them, so that the scheduler allocates the PF or its VFs, never
	// both. If only the PF or only VFs are on offer there is no set, because each set costs memory of the API server and the scheduler.
	pfSet     = "pf-"
	pfCounter = "vfs"
	// Each device of a unit consumes the unit's whole set, so that the scheduler allocates only one of them.
	unitSet     = "unit-"
	unitCounter = "use"
	// Counters for quotas, in the set of a unit with GPUs: the number of its GPUs, and their memory in bytes if all models are known.
	gpusCounter   = "gpus"
	memoryCounter = "memory"
)

// sharing is what the devices of one pool share.
type sharing struct {
	sets        []resourceapi.CounterSet
	consumption map[*entry][]resourceapi.DeviceCounterConsumption
}

// share returns the counter sets of one pool, and what its members consume of them. A device consumes from at most two sets, the limit of
// the API: its PF's and its unit's.
func share(n *Node, l *device.Layout, members []*entry) *sharing {
	shared := &sharing{consumption: map[*entry][]resourceapi.DeviceCounterConsumption{}}
	shared.pfs(n, members)
	shared.boards(n, l, members)
	shared.units(n, l, members)
	slices.SortFunc(shared.sets, func(a, b resourceapi.CounterSet) int { return strings.Compare(a.Name, b.Name) })
	return shared
}

// pfs adds a counter set for each PF that has to share it with VFs.
func (s *sharing) pfs(n *Node, members []*entry) {
	for _, family := range gather(members, n.pf) {
		pf := family[0].key
		if sharesNothing(pf, family) {
			continue
		}
		total := n.total(pf, family)
		s.add(pfSet+pf.Label(), pfCounter, total)
		for _, m := range family {
			uses := 1
			if m.entry.addr == pf {
				// The PF consumes as much as all its VFs together, so that the PF and a VF are never allocated at the same time (KEP-4815).
				uses = total
			}
			s.consume(m.entry, pfSet+pf.Label(), pfCounter, uses)
		}
	}
}

// total returns how many VFs the set of a PF counts: as many as the PF can have, or as many as exist if these are more. For a PF whose
// counters must not change, it is what the PF has consumed so far.
func (n *Node) total(pf pci.Address, family []keyed) int {
	total, vfs := 0, 0
	if f, ok := n.Snapshot.Function(pf); ok && f.PF != nil {
		total = f.PF.TotalVFs
	}
	for _, m := range family {
		if m.entry.addr != pf {
			vfs++
			continue
		}
		for _, c := range n.before(m.entry, pfSet) {
			// A PF that stays keeps its former total: what an allocated device consumes must not change (see
			// Node.Consumed).
			all := c.Counters[pfCounter]
			return int(all.Value.Value())
		}
	}
	return max(total, vfs)
}

// sharesNothing reports whether a PF needs no counter set: there are no VFs, or only VFs, and these are in the PF's pool. If the missing PF
// or VFs appear later, a set is made then and counts all of them: the PF of a VF that is gone by then follows from the pool's name. In any
// other pool the PF of such a VF follows only from its counter, so the set stays there.
func sharesNothing(pf pci.Address, family []keyed) bool {
	vfs := 0
	for _, m := range family {
		if m.entry.addr != pf {
			vfs++
		}
	}
	of, ok := device.PFOfPool(family[0].entry.pool)
	return vfs == 0 || ok && of == pf && vfs == len(family)
}

// before returns what a device that stays has consumed of the sets with a prefix.
func (n *Node) before(e *entry, prefix string) []resourceapi.DeviceCounterConsumption {
	if !e.stays {
		return nil
	}
	return n.ever(e, prefix)
}

// ever is like before, for any device, also one that does not stay.
func (n *Node) ever(e *entry, prefix string) []resourceapi.DeviceCounterConsumption {
	var all []resourceapi.DeviceCounterConsumption
	for _, c := range n.Consumed[Allocated{Pool: e.pool, Name: e.name}] {
		if strings.HasPrefix(c.CounterSet, prefix) {
			all = append(all, c)
		}
	}
	return all
}

// pf returns the PF that a device is or belongs to. For a VF that no longer exists, it uses the consumed counters or the pool's name.
func (n *Node) pf(e *entry) (pci.Address, bool) {
	switch {
	case e.f != nil && e.f.VF != nil:
		return e.f.VF.PF, true
	case e.f != nil:
		return e.addr, true
	}
	// sysfs no longer links a removed VF to its PF, but the name of the consumed set contains the PF's address.
	for _, c := range n.before(e, pfSet) {
		if pf, err := pci.ParseLabel(strings.TrimPrefix(c.CounterSet, pfSet)); err == nil {
			return pf, true
		}
	}
	switch e.kind {
	case device.VFType, device.GPUVF:
		return device.PFOfPool(e.pool)
	default:
		return e.addr, true
	}
}

// units adds a set for each unit with more than one device in the pool. It keeps the sets of devices that stay, for all devices that shared
// these sets before or share a unit with these devices now.
func (s *sharing) units(n *Node, l *device.Layout, members []*entry) {
	kept, renamed := map[string]bool{}, map[pci.Address]string{}
	for _, e := range members {
		for _, c := range n.before(e, unitSet) {
			kept[c.CounterSet] = true
			if e.f != nil {
				renamed[l.Unit(e.addr)] = c.CounterSet
			}
		}
	}
	bySet := map[string][]*entry{}
	for _, e := range members {
		sets := n.units(l, e, kept, renamed)
		if s.onBoard(e) { // the board's counters replace the unit's set, except for a set from before there was a board
			sets = slices.DeleteFunc(sets, func(set string) bool { return !kept[set] })
		}
		// The API server refuses a device with more entries than this limit, so the least important sets are dropped.
		for _, set := range sets[:min(len(sets), resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice-len(s.consumption[e]))] {
			bySet[set] = append(bySet[set], e)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(bySet)) { // the same input gives the same slices, byte for byte
		unit := bySet[set]
		quota := n.quota(l, unit)
		// A set with one consumer limits nothing, and each set costs memory of API server and scheduler.
		if len(unit) < 2 && !kept[set] && quota == nil {
			continue
		}
		s.share(set, unit, quota)
	}
}

// share adds the set of a unit. Each device of the unit consumes all of it. GPUs and pairs also consume the counters for quotas.
func (s *sharing) share(set string, unit []*entry, quota map[string]resourceapi.Counter) {
	whole := counters(unitCounter, 1)
	maps.Copy(whole, quota)
	s.sets = append(s.sets, resourceapi.CounterSet{Name: set, Counters: whole})
	for _, e := range unit {
		if e.kind == device.GPU && quota != nil {
			s.consumption[e] = append(s.consumption[e], resourceapi.DeviceCounterConsumption{CounterSet: set, Counters: whole})
			continue
		}
		s.consume(e, set, unitCounter, 1)
	}
}

// quota returns the counters for quotas of a unit; nil if the unit has no GPU, or if the node config wants no such counters. A unit whose
// only GPU is gone still counts one GPU.
func (n *Node) quota(l *device.Layout, unit []*entry) map[string]resourceapi.Counter {
	i := slices.IndexFunc(unit, func(e *entry) bool { return e.kind == device.GPU })
	if i < 0 || !n.Selection.QuotaCounters() {
		return nil
	}
	gpus, memory, known := 0, uint64(0), true
	for f := range unitGPUs(n, l, l.Unit(unit[i].addr)) {
		size, sure := n.Snapshot.GPUMemory(f)
		gpus, memory, known = gpus+1, memory+size, known && sure
	}
	quota := counters(gpusCounter, max(gpus, 1))
	if gpus > 0 && known {
		quota[memoryCounter] = resourceapi.Counter{Value: *resource.NewQuantity(int64(memory), resource.BinarySI)}
	}
	return quota
}

// unitGPUs iterates over the GPUs of a unit.
func unitGPUs(n *Node, l *device.Layout, unit pci.Address) iter.Seq[*device.Function] {
	return func(yield func(*device.Function) bool) {
		for i := range n.Snapshot.Functions {
			if f := &n.Snapshot.Functions[i]; f.Type == device.GPU && l.Unit(f.Address) == unit && !yield(f) {
				return
			}
		}
	}
}

// units returns the names of the counter sets of a device's unit, the most important first. It returns two names if the device shared a set
// with a device that stays, and now shares another set. It returns none if the device no longer exists and had no set.
func (n *Node) units(l *device.Layout, e *entry, kept map[string]bool, renamed map[pci.Address]string) []string {
	var sets []string
	if e.f != nil && len(n.before(e, unitSet)) == 0 && renamed[l.Unit(e.addr)] != "" {
		sets = []string{renamed[l.Unit(e.addr)]}
	}
	for _, c := range n.ever(e, unitSet) {
		if kept[c.CounterSet] && !slices.Contains(sets, c.CounterSet) {
			sets = append(sets, c.CounterSet)
		}
	}
	if sets == nil && e.f != nil {
		sets = []string{unitSet + l.Unit(e.addr).Label()}
	}
	return sets
}

func (s *sharing) add(set, counter string, value int) {
	s.sets = append(s.sets, resourceapi.CounterSet{Name: set, Counters: counters(counter, value)})
}

func (s *sharing) consume(e *entry, set, counter string, value int) {
	s.consumption[e] = append(s.consumption[e], resourceapi.DeviceCounterConsumption{
		CounterSet: set, Counters: counters(counter, value),
	})
}

func counters(name string, value int) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{name: {Value: *resource.NewQuantity(int64(value), resource.DecimalSI)}}
}

// keyed is an entry with the key by which it is grouped.
type keyed struct {
	key   pci.Address
	entry *entry
}

// gather groups the members that have a key: each group has all members with one key.
func gather(members []*entry, key func(*entry) (pci.Address, bool)) [][]keyed {
	var all []keyed
	for _, e := range members {
		if k, ok := key(e); ok {
			all = append(all, keyed{k, e})
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return a.key.Compare(b.key) })
	var runs [][]keyed
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(k keyed) bool { return k.key != all[0].key })
		if n < 0 {
			n = len(all)
		}
		runs, all = append(runs, all[:n]), all[n:]
	}
	return runs
}
