// Package publish decides what the node offers to the scheduler: which devices are in which pool, with which attributes, taints and shared
// counters. It is pure and deterministic: the same node gives the same slices, byte for byte, and a change of one function changes only the
// pool that the function is in.
//
// The pool is the unit of disturbance. While more than one slice of a pool changes, the scheduler allocates nothing from that pool until
// all its slices are written. So the GPUs are in one pool of the node, and each PF has a pool with its VFs. GPUs that another driver
// publishes too have a pool of their own, since the scheduler waits for conditions before it binds their pods. A pair of a GPU and a VF is
// in the pool of its GPU, and the VF is in no other pool. A claim for n pairs is then one request for n alike devices, which the scheduler
// decides in milliseconds even if they don't fit. With a claim for n GPUs and n VFs that constraints join, the scheduler would try all
// combinations until its time is up.
package publish

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Node is everything that is published about a node.
type Node struct {
	// Name is the node's name in the cluster, with which the names of its pools begin.
	Name      string
	Snapshot  *device.Snapshot
	Selection *nodeconfig.Selection
	// Assessments are the judgments ([plan.Assessor]) of all functions that are selected or allocated. A function
	// without one counts as not isolated.
	Assessments map[pci.Address]plan.Assessment
	// Health has the functions that are not healthy.
	Health map[pci.Address]Health
	// Allocated are the devices that claims hold, in any order. They stay published in any case: the scheduler sums up shared counters from
	// the allocated devices that it sees in slices.
	Allocated []Allocated
	// Lingering are devices that were published and may be a claim's ([Withdrawals]): the scheduler can allocate such a device before the
	// node learns of it. If a device is no longer offered under its name in its pool, it stays published there as withdrawn.
	Lingering []Allocated
	// Consumed is what each device consumed when it was published last. Allocated and withdrawn devices continue to consume the same, even
	// if the set of devices that they share counters with has changed: what the scheduler has counted for a claim must not change.
	Consumed map[Allocated][]resourceapi.DeviceCounterConsumption
	// PFs are the PFs of the pairs' VFs, from the time when the pairs were published last. They are used for VFs that no longer exist.
	PFs map[Allocated]pci.Address
	// FormerNames is set while the node still uses the pool names of earlier versions (device.FormerPool).
	FormerNames bool
	// Versions are those of the node's software.
	Versions Versions

	// made are the exclusive domains of Selection.
	made *plan.MadeDomains
}

// Health is the state of a function apart from the judgment on its isolation.
type Health struct {
	// Drained is the state of the device's drain; empty if there is none. Evict says that the pods that use the device
	// are evicted.
	Drained rule.Code
	Evict   bool
	// Failing are the checks of the audit that fail for the function or its node, and that count.
	Failing []rule.Failure
}

// Allocated names a device in the way that the allocation result of a claim does.
type Allocated struct {
	Pool string
	Name string
}

// Compare orders by pool and name.
func (a Allocated) Compare(b Allocated) int {
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}

// Pool is the content of one resource pool. The first slice and the first
// device are the scheduler's first choice.
type Pool struct {
	Slices []Slice `json:"slices"`
}

// Slice is the content of one ResourceSlice: devices or counters, never both.
type Slice struct {
	Devices        []resourceapi.Device     `json:"devices,omitempty"`
	SharedCounters []resourceapi.CounterSet `json:"sharedCounters,omitempty"`
}

// Pools returns the node's pools by name. The pool of the node's GPUs always exists, with an empty slice if there are none. The empty slice
// distinguishes a node without devices from a plugin that does not run.
func Pools(n *Node) map[string]Pool {
	known := *n
	known.made = plan.MakeDomains(n.Snapshot, n.Selection)
	return known.pools()
}

func (n *Node) pools() map[string]Pool {
	l := device.NewLayout(n.Snapshot)
	// The node's own pool exists even without devices, so that its slice replaces the former slices of the pool.
	byPool := map[string][]*entry{n.named(device.NodePool(n.Name)): nil}
	for _, e := range entries(n, l) {
		byPool[e.pool] = append(byPool[e.pool], e)
	}
	pools := make(map[string]Pool, len(byPool))
	for name, members := range byPool {
		pools[name] = newPool(n, l, members)
	}
	return pools
}

// Empty returns the node's pools without a device.
func Empty(n *Node) map[string]Pool {
	return map[string]Pool{n.named(device.NodePool(n.Name)): {Slices: []Slice{{}}}}
}

// named returns the name under which the node publishes the pool.
func (n *Node) named(pool string) string {
	if n.FormerNames {
		return device.FormerPool(pool)
	}
	return pool
}

// newPool makes the slices of one pool: first the devices, best isolated first, and then the counter sets that they share.
func newPool(n *Node, l *device.Layout, members []*entry) Pool {
	// The scheduler's allocator tries the devices of a slice in their order, and takes the first that fits.
	slices.SortFunc(members, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(n.position(a), n.position(b)), a.addr.Compare(b.addr), cmp.Compare(a.name, b.name))
	})
	shared := share(n, l, members)
	devices := make([]resourceapi.Device, len(members))
	for i, e := range members {
		devices[i] = newDevice(n, e)
		devices[i].ConsumesCounters = shared.consumption[e]
	}
	// A slice has devices or counter sets, never both: the API server's validation refuses the mix.
	var p Pool
	for chunk := range slices.Chunk(devices, MaxDevices) {
		p.Slices = append(p.Slices, Slice{Devices: chunk})
	}
	for chunk := range slices.Chunk(shared.sets, resourceapi.ResourceSliceMaxCounterSets) {
		p.Slices = append(p.Slices, Slice{SharedCounters: chunk})
	}
	if p.Slices == nil {
		// An empty slice replaces the former slices. If the pool had no slice at all, the former ones would stay.
		p.Slices = []Slice{{}}
	}
	return p
}

// lingering returns the entries of those lingering devices that published does not contain.
func lingering(n *Node, published []*entry) []*entry {
	there := map[Allocated]bool{}
	for _, e := range published {
		there[Allocated{Pool: e.pool, Name: e.name}] = true
	}
	var all []*entry
	for _, a := range n.Lingering {
		if there[a] {
			continue
		}
		there[a] = true
		if e := allocated(n, a); e != nil {
			e.leave(n)
			e.stays = true
			all = append(all, e)
		}
	}
	return all
}

// lingers reports whether e is a lingering device that is not published yet.
func lingers(n *Node, published []*entry, e *entry) bool {
	return slices.Contains(n.Lingering, Allocated{Pool: e.pool, Name: e.name}) &&
		!slices.ContainsFunc(published, func(p *entry) bool { return p.pool == e.pool && p.name == e.name })
}
