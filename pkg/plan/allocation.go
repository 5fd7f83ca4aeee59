package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A scheduler allocates a device by the name of its pool and its own. The address in the
// name exists on many nodes: only the pool says whose function was chosen, by which
// selectors, taints and counters.

// CheckNode returns a [RefusedError] for what of a request is allocated from pools of other
// nodes than the one with the name, which may be empty if it is not known.
func CheckNode(req *claim.Request, node string) error {
	m := maker{node: Node{Name: node}, ref: NewRef(req)}
	for i := range req.Devices {
		d := &req.Devices[i]
		c := candidate{maker: &m, claimed: d}
		if r := c.allocatedHere(); r != nil {
			m.refuse(d, r)
		}
	}
	if len(m.refusals) > 0 {
		return RefuseClaim(m.ref, m.refusals...)
	}
	return nil
}

// Gives reports whether the plan is one of the allocated devices: the same ones for the same
// requests, from the same pools, in any order.
func (p *Plan) Gives(devices []claim.Device) bool {
	have, want := make([]allocated, len(p.Devices)), make([]allocated, len(devices))
	for i := range p.Devices {
		d := &p.Devices[i]
		have[i] = allocated{d.Request, d.Pool, d.Name, d.Pair}
	}
	for i := range devices {
		d := &devices[i]
		want[i] = allocated{d.Request, d.Pool, d.Name, d.Pair}
	}
	slices.SortFunc(have, allocated.compare)
	slices.SortFunc(want, allocated.compare)
	return slices.Equal(have, want)
}

// allocated is a function's entry in an allocation.
type allocated struct{ request, pool, name, pair string }

// compare orders by name, which a claim has once.
func (a allocated) compare(b allocated) int { return strings.Compare(a.name, b.name) }

// comparesPools reports whether there are two pools to compare. A device without one was
// not allocated by a scheduler: it is bound from start-up on by the node's config.
func (c *candidate) comparesPools() bool { return c.node.Name != "" && c.claimed.Pool != "" }

// allocatedHere refuses a device that was allocated from a pool of another node.
func (c *candidate) allocatedHere() *rule.Verdict {
	if !c.comparesPools() || device.IsNodesPool(c.node.Name, c.claimed.Pool) {
		return nil
	}
	return &rule.Verdict{
		Code: rule.AllocatedElsewhere,
		Text: fmt.Sprintf("it is allocated from pool %s, but the names of this node's pools begin with %s", c.claimed.Pool, device.NodePool(c.node.Name)),
		Fix:  "run the pod on the node of its allocation: delete the pod and create it again without spec.nodeName, so that the scheduler places it",
	}
}

// allocatedFromItsPool refuses a device that was allocated from another pool than the one in which this node publishes it.
// A pool's former name is as good as its name: a scheduler can allocate by slices of an earlier version, and the device is
// still given to one claim only, because claims are compared by its functions.
func (c *candidate) allocatedFromItsPool() *rule.Verdict {
	if !c.comparesPools() {
		return nil
	}
	published := c.node.Selection.Pool(c.pools(), c.node.Name, c.publishedAt())
	if device.CurrentPool(c.claimed.Pool) == published {
		return nil
	}
	return &rule.Verdict{
		Code: rule.OtherPool, Driver: c.f.Driver,
		Text: fmt.Sprintf("it is allocated from pool %s, but this node publishes it in pool %s", c.claimed.Pool, published),
		Fix:  "delete the pod and its claim, so that a new claim is allocated from the current ResourceSlices",
	}
}

// IsShared reports whether another DRA driver publishes the device too.
func (d Device) IsShared() bool {
	_, ok := device.NodeOfSharedPool(d.Pool)
	return ok
}

// publishedAt returns the function whose pool the device is in: its own, or the GPU of its
// pair, beside which the pair is published.
func (c *candidate) publishedAt() pci.Address {
	if parts, err := device.ParseParts(c.claimed.Pair); err == nil {
		return parts[0].Address
	}
	return c.f.Address
}

// pools returns the layout of the node's pools.
func (m *maker) pools() *device.Layout {
	if m.layout == nil {
		m.layout = device.NewLayout(m.node.Snapshot)
	}
	return m.layout
}
