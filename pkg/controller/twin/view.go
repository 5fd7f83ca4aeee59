package twin

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// View is what the API server has of GPUs that kata-vfio and another DRA driver publish. The objects are read only.
type View struct {
	// Drivers are the DRA drivers that share GPUs with kata-vfio.
	Drivers []string
	// Cluster has the slices of kata-vfio and of Drivers, and the claims: all of them, or at least those that concern the nodes
	// to decide about (see [Scopes]).
	Cluster *cluster.Cluster
	// Rules are those with the controller's label.
	Rules []*resourceapi.DeviceTaintRule
	// Since is [Rule.Since] of a rule.
	Since func(*resourceapi.DeviceTaintRule) Millis
}

// GPUs returns the GPUs of the nodes, in the order of nodes and addresses.
func (v *View) GPUs(nodes ...string) []*GPU {
	b := v.collect(nodes)
	all := make([]*GPU, 0, len(b.gpus))
	for _, at := range b.places() {
		all = append(all, b.gpus[at])
	}
	return all
}

// collect returns a builder with all GPUs of the nodes.
func (v *View) collect(nodes []string) *builder {
	// First find all GPUs, by slices, rules and claims, and then add what is known about each: a GPU may be known only
	// by a rule or a claim.
	b := newBuilder(v, nodes)
	b.addPublished()
	for _, r := range v.Rules {
		b.addRulePlace(r)
	}
	for _, c := range v.Cluster.Claims() {
		b.addPlaces(c)
	}
	b.addTwins()
	for _, r := range v.Rules {
		b.addRule(r)
	}
	for _, c := range v.Cluster.Claims() {
		b.addClaim(c)
	}
	b.addUnplaced()
	return b
}

// Nodes returns the nodes on which there may be something to decide: those with shared devices of ours, with rules of
// the controller, and with claims of ours from pools of shared devices.
func (v *View) Nodes() []string {
	var nodes []string
	for _, p := range v.Cluster.Pools() {
		if node, ok := device.NodeOfSharedPool(p.Name); ok {
			nodes = append(nodes, node)
		}
	}
	for _, r := range v.Rules {
		nodes = append(nodes, RuleNodes(r)...)
	}
	for _, c := range v.Cluster.Claims() {
		for _, id := range c.Owned() {
			if node, ok := device.NodeOfSharedPool(id.Pool); ok && id.IsOurs() {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// RuleNodes returns the nodes that a rule concerns: the node in its annotation, and the node in the name of the pool whose
// device it taints.
func RuleNodes(r *resourceapi.DeviceTaintRule) []string {
	var nodes []string
	if at, ok := cluster.ParsePlace(r.Annotations[v1alpha1.AnnotationTwinPCI]); ok {
		nodes = append(nodes, at.Node)
	}
	if node, ok := device.NodeOfSharedPool(ruleTarget(r).Pool); ok && !slices.Contains(nodes, node) {
		nodes = append(nodes, node)
	}
	return nodes
}

// ClaimNodes returns the nodes on which a claim of one of the drivers, or of ours, has devices. all is true if it has
// a device whose node is unknown, so that every node is concerned.
func ClaimNodes(c *cluster.Claim, drivers []string) (nodes []string, all bool) {
	for _, id := range c.Owned() {
		switch {
		case !id.IsOurs() && !slices.Contains(drivers, id.Driver):
			continue
		case id.IsOurs():
			if at, ok := ourPlace(id); ok {
				nodes = append(nodes, at.Node)
			}
		case c.Node != "":
			nodes = append(nodes, c.Node)
		default:
			all = true
		}
	}
	return nodes, all
}

// ourPlace returns where a device of ours is, by the names of its pool and of itself. A GPU is in the pool of shared
// devices, or in the node's pool if its claim is older than the node config that shares it.
func ourPlace(id cluster.ID) (cluster.Place, bool) {
	node, ok := device.NodeOfGPUPool(id.Pool)
	parts, err := device.ParseParts(id.Name)
	if err != nil || !ok || parts[0].Type != device.GPU {
		return cluster.Place{}, false
	}
	return cluster.Place{Node: node, Address: parts[0].Address}, true
}
