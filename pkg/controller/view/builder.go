package view

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// builder collects the GPUs of some nodes.
type builder struct {
	cluster *Cluster
	nodes   map[string]bool
	gpus    map[place]*twin.GPU
	// onNode has the same GPUs by node.
	onNode map[string][]*twin.GPU
	// ours and theirs are the published devices of the nodes.
	ours   map[twin.Device]published
	theirs map[twin.Device]published
}

// published is a device as the newest slice has it.
type published struct {
	at         place
	located    bool // at is known
	generation int64
	shared     string // the driver that the device is shared with, of ours only
	ours       twin.Ours
}

func newBuilder(c *Cluster, nodes []string) *builder {
	b := &builder{
		cluster: c, nodes: map[string]bool{}, gpus: map[place]*twin.GPU{}, onNode: map[string][]*twin.GPU{},
		ours: map[twin.Device]published{}, theirs: map[twin.Device]published{},
	}
	for _, n := range nodes {
		b.nodes[n] = true
	}
	return b
}

// places returns where the GPUs are, in order.
func (b *builder) places() []place {
	return slices.SortedFunc(maps.Keys(b.gpus), comparePlaces)
}

// slice adds the devices of a slice. While a pool is rewritten it has slices of two generations: the newer one counts.
func (b *builder) slice(s *resourceapi.ResourceSlice) {
	if s.Spec.NodeName == nil || !b.nodes[*s.Spec.NodeName] {
		return
	}
	into := b.theirs
	if s.Spec.Driver == v1alpha1.DriverName {
		into = b.ours
	} else if !slices.Contains(b.cluster.Drivers, s.Spec.Driver) {
		return
	}
	for i := range s.Spec.Devices {
		d := publishedOf(s, &s.Spec.Devices[i])
		if known, ok := into[d.ours.Device]; !ok || known.generation <= d.generation {
			into[d.ours.Device] = d
		}
	}
}

func publishedOf(s *resourceapi.ResourceSlice, d *resourceapi.Device) published {
	addr, err := pci.ParseAddress(text(d, deviceattribute.StandardDeviceAttributePCIBusID))
	return published{
		at: place{*s.Spec.NodeName, addr}, located: err == nil, generation: s.Spec.Pool.Generation, shared: text(d, publish.AttrSharedWith),
		ours: twin.Ours{
			Device:       twin.Device{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Name: d.Name},
			KernelDriver: text(d, publish.AttrDriver), Healthy: healthy(d),
		},
	}
}

// text returns a string attribute, "" if the device has none of the name.
func text(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	if a, ok := d.Attributes[name]; ok && a.StringValue != nil {
		return *a.StringValue
	}
	return ""
}

// healthy reports whether a device of ours has no taint that says that it can't serve anybody.
func healthy(d *resourceapi.Device) bool {
	return !slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
		switch t.Key {
		case publish.TaintDead, publish.TaintLinkLost, publish.TaintFatalErrors, publish.TaintQuarantined:
			return true
		}
		return false
	})
}

// gpu returns the GPU at a place, which it adds. It returns nil on other nodes.
func (b *builder) gpu(at place) *twin.GPU {
	if !b.nodes[at.node] {
		return nil
	}
	if b.gpus[at] == nil {
		b.gpus[at] = &twin.GPU{PCI: at.String()}
		b.onNode[at.node] = append(b.onNode[at.node], b.gpus[at])
	}
	return b.gpus[at]
}

// on returns the GPUs that were added on a node, on every node for "".
func (b *builder) on(node string) []*twin.GPU {
	if node == "" {
		return slices.Collect(maps.Values(b.gpus))
	}
	return b.onNode[node]
}

// addPublished adds the GPUs that our driver publishes as shared.
func (b *builder) addPublished() {
	for _, d := range b.ours {
		// A claim that is older than the node config may keep a device of the same function in another pool.
		if _, ok := device.NodeOfSharedPool(d.ours.Pool); !ok || d.shared == "" || !d.located {
			continue
		}
		g := b.gpu(d.at)
		if g.Ours != nil && device.IsFormerPool(d.ours.Pool) {
			continue // the device is leaving its former pool, and already in the one that offers it
		}
		g.Ours, g.SharedWith = &d.ours, d.shared
	}
}

// placeOfRule adds the GPU that a rule is about.
func (b *builder) placeOfRule(r *resourceapi.DeviceTaintRule) {
	if at, ok := b.locate(r); ok {
		b.gpu(at)
	}
}

// placesOfClaim adds the GPUs that a claim has from the pool of shared devices, published or not.
func (b *builder) placesOfClaim(claim *resourceapi.ResourceClaim) {
	for _, d := range owned(claim) {
		if d.Driver != v1alpha1.DriverName {
			continue
		}
		if _, ok := device.NodeOfSharedPool(d.Pool); !ok {
			continue
		}
		if at, ok := ourPlace(d.Pool, d.Device); ok {
			b.gpu(at)
		}
	}
}

// addTwins adds the twins of all GPUs, and the driver that publishes them to GPUs that our slices don't have.
func (b *builder) addTwins() {
	for _, d := range slices.SortedFunc(maps.Keys(b.theirs), compareDevices) {
		p := b.theirs[d]
		if g := b.gpus[p.at]; g != nil && p.located && (g.SharedWith == "" || g.SharedWith == d.Driver) {
			g.SharedWith = d.Driver
			g.Twins = append(g.Twins, d)
		}
	}
	for _, r := range b.cluster.Rules {
		if at, ok := b.locate(r); ok && b.gpus[at] != nil && b.gpus[at].SharedWith == "" {
			b.gpus[at].SharedWith = sharedWith(r)
		}
	}
	for _, g := range b.gpus {
		if g.SharedWith == "" && len(b.cluster.Drivers) > 0 {
			g.SharedWith = b.cluster.Drivers[0]
		}
	}
}
