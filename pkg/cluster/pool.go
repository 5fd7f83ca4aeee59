package cluster

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pool is one pool of kata-vfio on a node: the slices of its newest generation. Slices of an older generation are about to be deleted and
// don't count, as for the scheduler.
type Pool struct {
	Node, Name string
	// Devices are in the order of the slices.
	Devices []*Device

	generation int64
	// want is the number of slices that the pool has once all are written, and have the number of slices that were added.
	want, have int64
	counters   map[counter]resourceapi.Counter
}

// poolKey names a pool. A slice in another node's pool is not part of it.
type poolKey struct{ node, name string }

// counter names a counter of a pool.
type counter struct{ set, name string }

// Unfinished reports whether the pool is being written, so that devices may be missing.
func (p *Pool) Unfinished() bool { return p.have < p.want }

func (c *Cluster) addSlice(s *resourceapi.ResourceSlice) {
	node, added := deref(s.Spec.NodeName), make([]*Device, len(s.Spec.Devices))
	for i := range s.Spec.Devices {
		d := decodeDevice(s, &s.Spec.Devices[i])
		added[i] = d
		appendTo(&c.byNode, node, d)
		for _, at := range d.Places {
			appendTo(&c.byPlace, at, d)
		}
		// While a driver rewrites its pool, slices of two generations exist, and a list has them in any order.
		if known := c.byID[d.ID]; known == nil || known.Generation <= d.Generation {
			put(&c.byID, d.ID, d)
		}
	}
	c.devices = append(c.devices, added...)
	c.addOwner(node, s.OwnerReferences)
	if (ID{Driver: s.Spec.Driver}).IsOurs() {
		c.addHealth(node, s)
		c.addToPool(poolKey{node, s.Spec.Pool.Name}, &s.Spec, added)
	}
}

func (c *Cluster) addToPool(key poolKey, spec *resourceapi.ResourceSliceSpec, added []*Device) {
	p := c.pools[key]
	if p == nil || spec.Pool.Generation > p.generation {
		p = &Pool{Node: key.node, Name: key.name, generation: spec.Pool.Generation, want: spec.Pool.ResourceSliceCount, counters: map[counter]resourceapi.Counter{}}
		put(&c.pools, key, p)
	}
	if spec.Pool.Generation < p.generation {
		return
	}
	p.have++
	p.Devices = append(p.Devices, added...)
	for i := range spec.SharedCounters {
		set := &spec.SharedCounters[i]
		for name, have := range set.Counters {
			p.counters[counter{set.Name, name}] = have
		}
	}
}

// addOwner keeps the Node that owns a node's slices.
func (c *Cluster) addOwner(node string, owners []metav1.OwnerReference) {
	i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.Name == node })
	if _, known := c.owners[node]; i >= 0 && !known {
		o := owners[i]
		// Without blockOwnerDeletion, because the admission plugin OwnerReferencesPermissionEnforcement, if it is enabled,
		// lets only those set it who may update the Node's finalizers.
		put(&c.owners, node, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
}

// Owner returns the Node that owns the slices of a node, and false if no such slice was added.
func (c *Cluster) Owner(node string) (metav1.OwnerReference, bool) {
	o, ok := c.owners[node]
	return o, ok
}

// Pools returns the pools of kata-vfio, by node and name.
func (c *Cluster) Pools() []*Pool {
	c.passes.Add(1)
	all := make([]*Pool, 0, len(c.pools))
	for _, p := range c.pools {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Pool) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	return all
}

// Nodes returns the nodes that have a pool of ours, sorted.
func (c *Cluster) Nodes() []string {
	var names []string
	for _, p := range c.Pools() {
		names = append(names, p.Node)
	}
	return slices.Compact(names)
}

// taken is what claims leave of a counter, and the devices that consume from it.
type taken struct {
	left   resourceapi.Counter
	takers []string
}

// Withheld returns for each device of a pool the claimed devices that leave too little of a counter for it: for a PF its VFs, for a pair
// its GPU as a single device.
func (c *Cluster) Withheld(p *Pool) map[*Device][]string {
	use := c.counters(p)
	withheld := map[*Device][]string{}
	for _, d := range p.Devices {
		for _, uses := range d.Details.consumes {
			for name, need := range uses.Counters {
				// While the pool is being written, the slice with this counter may be missing.
				if t := use[counter{uses.CounterSet, name}]; t != nil && t.left.Value.Cmp(need.Value) < 0 {
					withheld[d] = append(withheld[d], t.takers...)
				}
			}
		}
	}
	for d, by := range withheld {
		slices.Sort(by)
		withheld[d] = slices.Compact(by)
	}
	return withheld
}

// counters returns the counters of a pool minus the consumption of claimed devices.
func (c *Cluster) counters(p *Pool) map[counter]*taken {
	use := make(map[counter]*taken, len(p.counters))
	for key, have := range p.counters {
		// A Quantity may keep its digits behind a pointer: Sub on a plain copy would change the model.
		use[key] = &taken{left: *have.DeepCopy()}
	}
	for _, d := range p.Devices {
		if c.holders[d.ID] == nil {
			continue
		}
		for _, uses := range d.Details.consumes {
			for name, takes := range uses.Counters {
				if t := use[counter{uses.CounterSet, name}]; t != nil {
					t.left.Value.Sub(takes.Value)
					t.takers = append(t.takers, d.ID.Name)
				}
			}
		}
	}
	return use
}
