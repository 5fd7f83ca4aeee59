package fleet

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// withheldBy returns the claimed devices of the pool that leave too little of a
// counter for one that nobody has: a PF whose VFs are claimed, the pair of a GPU.
func (p *pool) withheldBy(d *resourceapi.Device, held map[allocated]*resourceapi.ResourceClaim) []string {
	var by []string
	for _, uses := range d.ConsumesCounters {
		for counter, need := range uses.Counters {
			left, known := p.capacity(uses.CounterSet, counter)
			var takers []string
			for i := range p.devices {
				other := &p.devices[i]
				takes, ok := consumption(other, uses.CounterSet, counter)
				if ok && held[allocated{p.name, other.Name}] != nil {
					left.Value.Sub(takes.Value)
					takers = append(takers, other.Name)
				}
			}
			if known && left.Value.Cmp(need.Value) < 0 {
				by = append(by, takers...)
			}
		}
	}
	slices.Sort(by)
	return slices.Compact(by)
}

func (p *pool) capacity(set, counter string) (resourceapi.Counter, bool) {
	for i := range p.sets {
		if c, ok := p.sets[i].Counters[counter]; ok && p.sets[i].Name == set {
			return *c.DeepCopy(), true
		}
	}
	return resourceapi.Counter{}, false
}

func consumption(d *resourceapi.Device, set, counter string) (resourceapi.Counter, bool) {
	for _, uses := range d.ConsumesCounters {
		if c, ok := uses.Counters[counter]; ok && uses.CounterSet == set {
			return c, true
		}
	}
	return resourceapi.Counter{}, false
}
