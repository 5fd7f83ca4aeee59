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

// The scheduler allocates a device by pool name and device name. A device name contains a PCI address, and the same
// address exists on many nodes. Only the pool shows which node's function was chosen, and which selectors, taints and
// counters applied.

// CheckNode returns a [rule.RefusedError] if the request has devices from pools of another node than the named one. An
// empty name means that the node is unknown, and nothing is refused.
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

// Gives reports whether the plan covers exactly the allocated devices: the same devices for the same requests, from the
// same pools, in any order.
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

// allocated is one result of an allocation.
type allocated struct{ request, pool, name, pair string }

// compare orders by name. A name occurs once in a claim.
func (a allocated) compare(b allocated) int { return strings.Compare(a.name, b.name) }

// comparesPools reports whether the candidate's pool can be compared with the node's pools. A device without a pool was
// not allocated by a scheduler: the plugin binds it without a claim, or an [Assessor] assesses it.
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

// allocatedFromItsPool refuses a device that was allocated from another pool than the one in which this node publishes
// it. A former name of a pool counts as its present name, because a scheduler may still use slices of an earlier
// version. That is safe: two claims can't get one device, because claims are compared by their functions.
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

// publishedAt returns the function that decides the device's pool: the device's own function, or the GPU of its pair.
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
