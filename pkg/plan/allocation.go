package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A scheduler allocates a device by the name of its pool and its own. The address in the
// name exists on many nodes: only the pool says whose function was chosen, by which
// selectors, taints and counters.

// comparesPools reports whether there are two pools to compare. A device without one was
// not allocated by a scheduler: it is bound from start-up on by the node's config.
func (c *candidate) comparesPools() bool { return c.node.Name != "" && c.claimed.Pool != "" }

// allocatedHere refuses a device that was allocated from a pool of another node.
func (c *candidate) allocatedHere() *Refusal {
	if !c.comparesPools() || device.IsPoolOf(c.node.Name, c.claimed.Pool) {
		return nil
	}
	return &Refusal{
		Code: AllocatedElsewhere,
		Text: fmt.Sprintf("it is allocated from pool %s, and the pools of this node are %s and %s/pf-...", c.claimed.Pool, c.node.Name, c.node.Name),
		Fix:  "run the pod on the node of its allocation: delete the pod and create it again without spec.nodeName, so that the scheduler places it",
	}
}

// allocatedFromItsPool refuses a device that was allocated from another pool than the one
// in which this node publishes it.
func (c *candidate) allocatedFromItsPool() *Refusal {
	if !c.comparesPools() {
		return nil
	}
	published := c.pools().Pool(c.node.Name, c.publishedAt())
	if c.claimed.Pool == published {
		return nil
	}
	return &Refusal{
		Code: OtherPool, Driver: c.f.Driver,
		Text: fmt.Sprintf("it is allocated from pool %s, and this node publishes it in pool %s", c.claimed.Pool, published),
		Fix:  "delete the pod and its claim, so that a new claim is allocated from the current ResourceSlices",
	}
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
