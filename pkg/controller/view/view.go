// Package view turns what the API server has into the values that pkg/controller/twin decides on: each GPU that kata-vfio
// and another DRA driver publish, with its claims and rules. It is pure.
package view

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Cluster is what the API server has. The objects are read only.
type Cluster struct {
	// Drivers are the DRA drivers that share GPUs with kata-vfio.
	Drivers []string
	// Slices are those of kata-vfio and of Drivers, Rules those with the controller's label, Claims all.
	Slices []*resourceapi.ResourceSlice
	Rules  []*resourceapi.DeviceTaintRule
	Claims []*resourceapi.ResourceClaim
	// Since is [twin.Rule.Since] of a rule.
	Since func(*resourceapi.DeviceTaintRule) twin.Millis
}

// A place is where a GPU is.
type place struct {
	node string
	addr pci.Address
}

// String is the form of the annotation [v1alpha1.AnnotationTwinPCI].
func (p place) String() string { return p.node + "/" + p.addr.String() }

// parsePlace reads "<node>/<address>".
func parsePlace(text string) (place, bool) {
	node, label, ok := strings.Cut(text, "/")
	addr, err := pci.ParseAddress(label)
	return place{node, addr}, ok && node != "" && err == nil
}

// GPUs returns the GPUs of the nodes, in the order of nodes and addresses.
func (c *Cluster) GPUs(nodes ...string) []*twin.GPU {
	b := c.collect(nodes)
	all := make([]*twin.GPU, 0, len(b.gpus))
	for _, at := range b.places() {
		all = append(all, b.gpus[at])
	}
	return all
}

// collect returns a builder with all GPUs of the nodes.
func (c *Cluster) collect(nodes []string) *builder {
	b := newBuilder(c, nodes)
	for _, s := range c.Slices {
		b.slice(s)
	}
	b.addPublished()
	for _, r := range c.Rules {
		b.placeOfRule(r)
	}
	for _, claim := range c.Claims {
		b.placesOfClaim(claim)
	}
	b.addTwins()
	for _, r := range c.Rules {
		b.rule(r)
	}
	for _, claim := range c.Claims {
		b.claim(claim)
	}
	return b
}

// Nodes returns the nodes on which there may be something to decide: those with shared devices of ours, with rules of
// the controller, and with claims of ours from pools of shared devices.
func (c *Cluster) Nodes() []string {
	var nodes []string
	for _, s := range c.Slices {
		if node, ok := device.NodeOfSharedPool(s.Spec.Pool.Name); ok && s.Spec.Driver == v1alpha1.DriverName {
			nodes = append(nodes, node)
		}
	}
	for _, r := range c.Rules {
		nodes = append(nodes, NodesOfRule(r)...)
	}
	for _, claim := range c.Claims {
		for _, d := range owned(claim) {
			if node, ok := device.NodeOfSharedPool(d.Pool); ok && d.Driver == v1alpha1.DriverName {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// NodesOfSlice returns the node of a slice, if it has one.
func NodesOfSlice(s *resourceapi.ResourceSlice) []string {
	if s.Spec.NodeName == nil {
		return nil
	}
	return []string{*s.Spec.NodeName}
}

// NodesOfRule returns the nodes that a rule concerns: that of its annotation, and that of the pool of our device which
// it taints.
func NodesOfRule(r *resourceapi.DeviceTaintRule) []string {
	var nodes []string
	if at, ok := parsePlace(r.Annotations[v1alpha1.AnnotationTwinPCI]); ok {
		nodes = append(nodes, at.node)
	}
	if node, ok := device.NodeOfSharedPool(targetOf(r).Pool); ok && !slices.Contains(nodes, node) {
		nodes = append(nodes, node)
	}
	return nodes
}

// NodesOfClaim returns the nodes on which a claim of one of the drivers, or of ours, has devices. all is true if it has
// a device whose node is unknown, so that every node is concerned.
func (c *Cluster) NodesOfClaim(claim *resourceapi.ResourceClaim) (nodes []string, all bool) {
	for _, d := range owned(claim) {
		switch {
		case d.Driver != v1alpha1.DriverName && !slices.Contains(c.Drivers, d.Driver):
			continue
		case d.Driver == v1alpha1.DriverName:
			if at, ok := ourPlace(d.Pool, d.Device); ok {
				nodes = append(nodes, at.node)
			}
		default:
			if node := nodeOf(claim); node != "" {
				nodes = append(nodes, node)
			} else {
				all = true
			}
		}
	}
	return nodes, all
}

// owned returns the devices that a claim has to itself. Those with adminAccess are left out: such a claim allocates
// nothing, so that a monitor, which has all GPUs of the other driver, would keep each from VMs for ever. What its
// containers have open is seen by Prepare, which refuses the device and names the process.
func owned(claim *resourceapi.ResourceClaim) []*resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	var all []*resourceapi.DeviceRequestAllocationResult
	for i := range claim.Status.Allocation.Devices.Results {
		if d := &claim.Status.Allocation.Devices.Results[i]; d.AdminAccess == nil || !*d.AdminAccess {
			all = append(all, d)
		}
	}
	return all
}

// nodeOf returns the node that an allocated claim is bound to, "" if that is not one node. The scheduler selects the
// node by name for devices of a slice with spec.nodeName.
func nodeOf(claim *resourceapi.ResourceClaim) string {
	selector := claim.Status.Allocation.NodeSelector
	if selector == nil || len(selector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, f := range selector.NodeSelectorTerms[0].MatchFields {
		if f.Key == "metadata.name" && f.Operator == "In" && len(f.Values) == 1 {
			return f.Values[0]
		}
	}
	return ""
}

// ourPlace returns where a device of ours is, by the names of its pool and of itself. A GPU is in the pool of shared
// devices, or in the node's pool if its claim is older than the node config that shares it.
func ourPlace(pool, name string) (place, bool) {
	node, ok := device.NodeOfGPUPool(pool)
	parts, err := device.ParseParts(name)
	if err != nil || !ok || parts[0].Type != device.GPU {
		return place{}, false
	}
	return place{node, parts[0].Address}, true
}

// comparePlaces orders by node and address.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.node, b.node), a.addr.Compare(b.addr))
}
