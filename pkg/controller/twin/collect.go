package twin

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// builder collects the GPUs of some nodes.
type builder struct {
	view  *View
	nodes map[string]bool
	gpus  map[cluster.Place]*GPU
	// unplaced are claims of devices that are not published.
	unplaced map[unplacedAt][]Claim
	// ours and theirs are the published devices of the nodes, as the newest slices have them. While a pool is rewritten it has slices of
	// two generations, and a device that only the older one has counts, too.
	ours   map[cluster.ID]*cluster.Device
	theirs map[cluster.ID]*cluster.Device
}

func newBuilder(v *View, nodes []string) *builder {
	b := &builder{
		view: v, nodes: map[string]bool{}, gpus: map[cluster.Place]*GPU{}, unplaced: map[unplacedAt][]Claim{},
		ours: map[cluster.ID]*cluster.Device{}, theirs: map[cluster.ID]*cluster.Device{},
	}
	for _, n := range nodes {
		b.nodes[n] = true
		for _, d := range v.Cluster.On(n) {
			b.addDevice(d)
		}
	}
	return b
}

func (b *builder) addDevice(d *cluster.Device) {
	into := b.theirs
	if d.IsOurs() {
		into = b.ours
	} else if !slices.Contains(b.view.Drivers, d.ID.Driver) {
		return
	}
	// While a driver rewrites its pool, slices of two generations exist. The scheduler goes by the higher one.
	if known := into[d.ID]; known == nil || known.Generation <= d.Generation {
		into[d.ID] = d
	}
}

// places returns where the GPUs are, in order.
func (b *builder) places() []cluster.Place {
	return slices.SortedFunc(maps.Keys(b.gpus), cluster.Place.Compare)
}

// located returns the place of a published device, and false if the device is no PCI function. The place of a pair is that of
// its GPU.
func located(d *cluster.Device) (cluster.Place, bool) {
	if len(d.Places) == 0 {
		return cluster.Place{}, false
	}
	return d.Places[0], true
}

// healthy reports whether a device of ours has no taint that says that it can't serve anybody.
func healthy(d *cluster.Device) bool {
	return !slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
		switch t.Key {
		case publish.TaintDead, publish.TaintLinkLost, publish.TaintFatalErrors, publish.TaintQuarantined:
			return true
		}
		return false
	})
}

// gpu returns the GPU at a place, and adds it if it is missing. It returns nil if the place is on a node that is not collected.
func (b *builder) gpu(at cluster.Place) *GPU {
	if !b.nodes[at.Node] {
		return nil
	}
	if b.gpus[at] == nil {
		b.gpus[at] = &GPU{PCI: at.String()}
	}
	return b.gpus[at]
}

// addPublished adds the GPUs that our driver publishes as shared.
func (b *builder) addPublished() {
	for id, d := range b.ours {
		at, ok := located(d)
		// A claim that is older than the node config may keep a device of the same function in another pool.
		if _, shared := device.NodeOfSharedPool(id.Pool); !ok || !shared || d.Details.SharedWith == "" {
			continue
		}
		g := b.gpu(at)
		if g.Ours != nil && device.IsFormerPool(id.Pool) {
			continue // the device is leaving its former pool, and already in the one that offers it
		}
		g.Ours, g.SharedWith = &Ours{Device: id, KernelDriver: d.Details.Driver, Healthy: healthy(d)}, d.Details.SharedWith
	}
}

// addRulePlace adds the GPU that a rule is about.
func (b *builder) addRulePlace(r *resourceapi.DeviceTaintRule) {
	if at, ok := b.locate(r); ok {
		b.gpu(at)
	}
}

// addPlaces adds the GPUs that a claim has from the pool of shared devices, published or not.
func (b *builder) addPlaces(c *cluster.Claim) {
	for _, id := range c.Owned() {
		if _, shared := device.NodeOfSharedPool(id.Pool); !shared || !id.IsOurs() {
			continue
		}
		if at, ok := ourPlace(id); ok {
			b.gpu(at)
		}
	}
}

// addTwins adds the twins of all GPUs. To GPUs that our slices don't have, it adds the driver that publishes them.
func (b *builder) addTwins() {
	for _, id := range slices.SortedFunc(maps.Keys(b.theirs), cluster.ID.Compare) {
		at, ok := located(b.theirs[id])
		if g := b.gpus[at]; g != nil && ok && (g.SharedWith == "" || g.SharedWith == id.Driver) {
			g.SharedWith = id.Driver
			g.Twins = append(g.Twins, id)
		}
	}
	for _, r := range b.view.Rules {
		if at, ok := b.locate(r); ok && b.gpus[at] != nil && b.gpus[at].SharedWith == "" {
			b.gpus[at].SharedWith = sharedWith(r)
		}
	}
	for _, g := range b.gpus {
		// No slice and no rule names the other driver of such a GPU. If only one driver is configured, it is that one. If
		// several are, the first is a guess.
		if g.SharedWith == "" && len(b.view.Drivers) > 0 {
			g.SharedWith = b.view.Drivers[0]
		}
	}
}
