// Package publish decides what the node offers to the scheduler: which devices are in which pool, with which
// attributes, taints and shared counters. It is pure and deterministic: the same node gives the same slices, byte
// for byte, and a change of one function changes only the pool that it is in.
//
// Pools are the unit of disturbance. Whenever more than one slice of a pool changes, the scheduler allocates
// nothing from that pool until all are written, so GPUs have a pool of the node and each PF has one with its VFs.
// GPUs that another driver publishes too have one pool, since the scheduler waits for conditions before it binds their pods.
// A pair of a GPU and a VF is beside its GPU, and its VF is in no other pool. Then a claim for n pairs is one
// request for n alike devices, which the scheduler decides in milliseconds even if they don't fit. Over n GPUs and
// n VFs joined by constraints it tries all combinations until its time is up.
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

// Node has all that is published of a node.
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
	// Allocated are the devices that claims hold, in any order. They stay
	// published whatever becomes of them: the scheduler counts shared counters
	// by the allocated devices that it sees in slices.
	Allocated []Allocated
	// Lingering are devices that were published and may be a claim's ([Withdrawals]): the scheduler can allocate one
	// without the node knowing yet. A device that is no longer offered under its name in its pool stays published there,
	// withdrawn.
	Lingering []Allocated
	// Consumed is what devices consumed when they were published last. Allocated and
	// withdrawn ones go on with it, also where what they share it with has changed: what the
	// scheduler has counted for a claim must not change.
	Consumed map[Allocated][]resourceapi.DeviceCounterConsumption
	// PFs are those of the pairs' VFs, as the pairs were published last. They are used for VFs that no longer exist.
	PFs map[Allocated]pci.Address
	// FormerNames is set while the node goes on with the names that earlier versions gave to its pools (device.FormerPool).
	FormerNames bool
	// Versions are those of the node's software.
	Versions Versions

	// made are the exclusive domains of Selection.
	made *plan.MadeDomains
}

// Health is what is known of a function's state beyond the judgment on it.
type Health struct {
	// Drained is the state of the device's drain; empty if there is none. Evict says that the pods that use the device
	// are evicted.
	Drained rule.Code
	Evict   bool
	// Failing are the checks of the audit that count and fail for the function or
	// its node.
	Failing []rule.Failure
}

// Allocated names a device as a claim's allocation result does.
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

// Pools returns the node's pools by name. The pool of its GPUs is always there, if only with an empty slice, which tells "no devices" from
// "not running".
func Pools(n *Node) map[string]Pool {
	known := *n
	known.made = plan.MakeDomains(n.Snapshot, n.Selection)
	return known.pools()
}

func (n *Node) pools() map[string]Pool {
	l := device.NewLayout(n.Snapshot)
	// The node's own pool is there without devices, too, and so takes the place of its former slices.
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

// newPool makes the slices of one pool: devices best isolated first, then what
// they share.
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
		// An empty slice takes the place of the former ones. Without any slice they would stay.
		p.Slices = []Slice{{}}
	}
	return p
}

// lingering returns the entries of the lingering devices that are not among those
// that are published anyway.
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
