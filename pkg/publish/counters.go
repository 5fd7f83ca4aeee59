package publish

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Counters and the prefixes of their sets, which end in an address.
const (
	// A PF's set counts its VFs: a VF consumes one, the PF all, so that the
	// scheduler gives away the PF or VFs, never both.
	pfSet     = "pf-"
	pfCounter = "vfs"
	// A unit's set is consumed whole by each device of it, so that the
	// scheduler gives away one of them.
	unitSet     = "unit-"
	unitCounter = "use"
)

// sharing is what the devices of one pool share.
type sharing struct {
	sets        []resourceapi.CounterSet
	consumption map[*entry][]resourceapi.DeviceCounterConsumption
}

// share returns what the members of one pool share. A device has at most two
// entries, which is what the API allows: its PF's and its unit's.
func share(s *device.Snapshot, l *device.Layout, members []*entry) *sharing {
	shared := &sharing{consumption: map[*entry][]resourceapi.DeviceCounterConsumption{}}
	shared.pfs(s, members)
	shared.units(l, members)
	slices.SortFunc(shared.sets, func(a, b resourceapi.CounterSet) int { return strings.Compare(a.Name, b.Name) })
	return shared
}

// pfs adds a set for each PF that has VFs or could have them.
func (s *sharing) pfs(snap *device.Snapshot, members []*entry) {
	for _, family := range gather(members, pfOf) {
		pf, total := family[0].key, 0
		for _, m := range family {
			if m.entry.addr != pf {
				total++
			}
		}
		if f, ok := snap.Function(pf); ok && f.PF != nil {
			total = max(total, f.PF.TotalVFs)
		}
		if total == 0 {
			continue // a NIC without SR-IOV
		}
		s.add(pfSet+pf.Label(), pfCounter, total)
		for _, m := range family {
			uses := 1
			if m.entry.addr == pf {
				uses = total
			}
			s.consume(m.entry, pfSet+pf.Label(), pfCounter, uses)
		}
	}
}

// pfOf returns the PF that a device is or belongs to. Of a VF that is gone
// the pool's name tells it.
func pfOf(e *entry) (pci.Address, bool) {
	switch {
	case e.f != nil && e.f.VF != nil:
		return e.f.VF.PF, true
	case e.kind != device.VFType:
		return e.addr, true
	}
	return device.PFOfPool(e.pool)
}

// units adds a set for each unit with more than one device in the pool.
func (s *sharing) units(l *device.Layout, members []*entry) {
	for _, unit := range gather(members, func(e *entry) (pci.Address, bool) { return l.Unit(e.addr), e.f != nil }) {
		if len(unit) < 2 {
			continue
		}
		name := unitSet + unit[0].key.Label()
		s.add(name, unitCounter, 1)
		for _, m := range unit {
			s.consume(m.entry, name, unitCounter, 1)
		}
	}
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

// keyed is an entry with what it was gathered by.
type keyed struct {
	key   pci.Address
	entry *entry
}

// gather returns the members with a key in runs of the same key.
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
