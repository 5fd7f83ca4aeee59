// Package fleet derives from the API server's objects which claim has which device, how claims fare and why. It
// only decides: the caller lists the objects and prints the result. All texts are as they were listed, and may
// come from anyone.
package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// Kind is a kind of object that is listed, by its name in the API.
type Kind string

// Kinds of objects that rows rest on.
const (
	Slices Kind = "resourceslices"
	Claims Kind = "resourceclaims"
	Pods   Kind = "pods"
	Events Kind = "events"
)

// State is what was listed. Objects of other drivers may be among it.
type State struct {
	Slices []resourceapi.ResourceSlice
	Claims []resourceapi.ResourceClaim
	Pods   []corev1.Pod
	Events []corev1.Event
	// Missing says of a kind why it could not be listed. What rests on it is unknown
	// then, never good.
	Missing map[Kind]string
	// Namespace is the only one whose claims were listed; empty for all.
	Namespace string
	Now       time.Time
	// Reports are nodes' own audits, several of a node included, for explanations; may be empty.
	Reports []*finding.Report
}

// pool is one pool of a node: the slices of its latest generation.
type pool struct {
	node, name string
	devices    []resourceapi.Device
	sets       []resourceapi.CounterSet
	generation int64
	// want is how many slices it has when all are written, and have how many are.
	want, have int64
}

// pools returns the pools of our driver, by node and name. Slices of an older
// generation are about to go, and count for nothing, as for the scheduler.
func (s *State) pools() []*pool {
	type key struct{ node, name string }
	byName := map[key]*pool{}
	for i := range s.Slices {
		spec := &s.Slices[i].Spec
		if spec.Driver != v1alpha1.DriverName {
			continue
		}
		k := key{deref(spec.NodeName), spec.Pool.Name}
		p := byName[k]
		if p == nil || spec.Pool.Generation > p.generation {
			p = &pool{node: k.node, name: k.name, generation: spec.Pool.Generation, want: spec.Pool.ResourceSliceCount}
			byName[k] = p
		}
		if spec.Pool.Generation == p.generation {
			p.have++
			p.devices = append(p.devices, spec.Devices...)
			p.sets = append(p.sets, spec.SharedCounters...)
		}
	}
	var all []*pool
	for _, p := range byName {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *pool) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name)) })
	return all
}

// Unfinished names the pools that are being written, of which devices may be missing.
func (s *State) Unfinished() []string {
	var names []string
	for _, p := range s.pools() {
		if p.have < p.want {
			names = append(names, p.name)
		}
	}
	return names
}

// Nodes returns the nodes that have published something, sorted.
func (s *State) Nodes() []string {
	var names []string
	for _, p := range s.pools() {
		names = append(names, p.node)
	}
	return slices.Compact(names)
}

// allocated names a device as slices and allocation results do.
type allocated struct{ pool, device string }

// holders returns which claims have which devices of ours. A claim with admin access observes a device that
// another claim has, and does not keep others from it.
func (s *State) holders() map[allocated]*resourceapi.ResourceClaim {
	held := map[allocated]*resourceapi.ResourceClaim{}
	for i := range s.Claims {
		for _, r := range results(&s.Claims[i]) {
			if r.AdminAccess == nil || !*r.AdminAccess {
				held[allocated{r.Pool, r.Device}] = &s.Claims[i]
			}
		}
	}
	return held
}

// results returns what a claim has got of our driver.
func results(c *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if c.Status.Allocation == nil {
		return nil
	}
	var ours []resourceapi.DeviceRequestAllocationResult
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == v1alpha1.DriverName {
			ours = append(ours, r)
		}
	}
	return ours
}

// IsOurs reports whether a claim has devices of ours, or waits for some: it names a DeviceClass of our domain, or
// has parameters for the driver. A waiting claim by a class of another name can't be recognized without the class.
func IsOurs(c *resourceapi.ResourceClaim) bool {
	if len(results(c)) > 0 || slices.ContainsFunc(c.Status.Devices, func(d resourceapi.AllocatedDeviceStatus) bool { return d.Driver == v1alpha1.DriverName }) {
		return true
	}
	if c.Status.Allocation != nil {
		return false
	}
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly != nil && isOurClass(r.Exactly.DeviceClassName) ||
			slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool { return isOurClass(sub.DeviceClassName) }) {
			return true
		}
	}
	return slices.ContainsFunc(c.Spec.Devices.Config, func(p resourceapi.DeviceClaimConfiguration) bool {
		return p.Opaque != nil && p.Opaque.Driver == v1alpha1.DriverName
	})
}

func isOurClass(name string) bool { return strings.HasSuffix(name, "."+v1alpha1.DriverName) }

// nodeOf returns the node of a pool, whose name begins with it.
func nodeOf(pool string) string {
	node, _, _ := strings.Cut(pool, "/")
	return node
}

func nameOf(c *resourceapi.ResourceClaim) string { return c.Namespace + "/" + c.Name }

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// withheldBy returns the claimed devices of the pool that leave too little of a counter for an unclaimed device: a
// PF whose VFs are claimed, the pair of a GPU.
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
