package cluster

import (
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
)

// Claim is a ResourceClaim.
type Claim struct {
	// Object is the claim as it was listed.
	Object *resourceapi.ResourceClaim
	// Allocated are the devices of all drivers that are allocated to the claim.
	Allocated []Allocated
	// Statuses are kata-vfio's statuses of devices of the claim, whether the devices are still allocated or not.
	Statuses []*Status
	// Node is the node that the claim is bound to; empty if the claim is not allocated, or not bound to exactly one node.
	Node string
	// Pods are the names of the pods for which the claim is reserved, and PodGroup is the name of the PodGroup; empty if there is none.
	// Owners are the pods for which the claim was made, from a template or for extended resources.
	Pods     []string
	PodGroup string
	Owners   []string
}

// Allocated is a device that a claim is given.
type Allocated struct {
	ID ID
	// Admin is set for a device that the claim only observes (adminAccess): another claim may have it.
	Admin bool
	// Skips are the calls to the driver that the kubelet skips for this claim.
	Skips []resourceapi.SkipNodeOperation
}

// Status is what our driver says of a device of a claim.
type Status struct {
	Claim  *Claim
	ID     ID
	Object *resourceapi.AllocatedDeviceStatus
	Data   Data
}

// Data is what the plugin writes into status.devices[].data. Its JSON form is stable: names are added, never changed.
type Data struct {
	Address     string   `json:"address,omitempty"`
	IOMMUGroup  *int     `json:"iommuGroup,omitempty"`
	VFIODriver  string   `json:"vfioDriver,omitempty"`
	Functions   []string `json:"functions,omitempty"`
	Representor string   `json:"representor,omitempty"`
	Evidence    string   `json:"evidence,omitempty"`
	// Ledger is a signed checkpoint of the node's ledger, several lines.
	Ledger string `json:"ledger,omitempty"`
}

// DecodeClaim decodes a claim by itself. [Cluster.Add] does it for those of a cluster.
func DecodeClaim(o *resourceapi.ResourceClaim) *Claim {
	c := &Claim{Object: o, Pods: []string{}, Owners: []string{}}
	if given := o.Status.Allocation; given != nil {
		c.Node = selectedNode(given)
		for i := range given.Devices.Results {
			r := &given.Devices.Results[i]
			c.Allocated = append(c.Allocated, Allocated{ID{r.Driver, r.Pool, r.Device}, deref(r.AdminAccess), r.SkipNodeOperations})
		}
	}
	for i := range o.Status.Devices {
		if s := &o.Status.Devices[i]; (ID{Driver: s.Driver}).IsOurs() {
			c.Statuses = append(c.Statuses, decodeStatus(c, s))
		}
	}
	for i := range o.Status.ReservedFor {
		c.reserve(&o.Status.ReservedFor[i])
	}
	for _, owner := range o.OwnerReferences {
		if owner.Kind == "Pod" && owner.APIVersion == "v1" {
			c.Owners = append(c.Owners, owner.Name)
		}
	}
	return c
}

func decodeStatus(c *Claim, s *resourceapi.AllocatedDeviceStatus) *Status {
	status := &Status{Claim: c, ID: ID{s.Driver, s.Pool, s.Device}, Object: s}
	if s.Data != nil {
		// A document that is not the plugin's says nothing.
		_ = json.Unmarshal(s.Data.Raw, &status.Data)
	}
	return status
}

func (c *Claim) reserve(ref *resourceapi.ResourceClaimConsumerReference) {
	switch {
	case claim.IsPodGroup(ref):
		c.PodGroup = ref.Name
	case ref.APIGroup == "" && ref.Resource == "pods":
		c.Pods = append(c.Pods, ref.Name)
	}
}

// selectedNode returns the node that an allocation is bound to, and "" if that is not one node. The scheduler selects the node by name for
// devices of a slice with spec.nodeName.
func selectedNode(given *resourceapi.AllocationResult) string {
	selector := given.NodeSelector
	// Terms are alternatives: with two of them the claim is not bound to one node.
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

// Name returns "<namespace>/<name>".
func (c *Claim) Name() string { return c.Object.Namespace + "/" + c.Object.Name }

// Ours returns the devices of ours that the claim is given.
func (c *Claim) Ours() []Allocated {
	var ours []Allocated
	for _, a := range c.Allocated {
		if a.ID.IsOurs() {
			ours = append(ours, a)
		}
	}
	return ours
}

// HasOurs reports whether the claim is given a device of ours.
func (c *Claim) HasOurs() bool {
	return slices.ContainsFunc(c.Allocated, func(a Allocated) bool { return a.ID.IsOurs() })
}

// Tolerations returns what all requests of the claim tolerate, also those of alternatives.
func (c *Claim) Tolerations() []resourceapi.DeviceToleration {
	var all []resourceapi.DeviceToleration
	for i := range c.Object.Spec.Devices.Requests {
		r := &c.Object.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			all = append(all, r.Exactly.Tolerations...)
		}
		for j := range r.FirstAvailable {
			all = append(all, r.FirstAvailable[j].Tolerations...)
		}
	}
	return all
}

// Owned returns the devices that belong to the claim alone. It leaves out devices with adminAccess, because such a request allocates
// nothing.
func (c *Claim) Owned() []ID {
	var ids []ID
	for _, a := range c.Allocated {
		if !a.Admin {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

func (c *Cluster) addClaim(added *Claim) {
	c.claims = append(c.claims, added)
	if key := (objectKey{added.Object.Namespace, added.Object.Name}); c.byName[key] == nil {
		put(&c.byName, key, added)
	}
	for _, id := range added.Owned() {
		put(&c.holders, id, added)
	}
	for _, s := range added.Statuses {
		appendTo(&c.statuses, s.ID.Node(), s)
	}
}

// Claims returns all claims in the order in which they were added.
func (c *Cluster) Claims() []*Claim {
	c.passes.Add(1)
	return c.claims
}

// Claim returns a claim; nil if there is none of the name.
func (c *Cluster) Claim(namespace, name string) *Claim { return c.byName[objectKey{namespace, name}] }

// Holder returns the claim that has a device to itself; nil if there is none.
func (c *Cluster) Holder(id ID) *Claim { return c.holders[id] }

// StatusesOn returns kata-vfio's statuses, from all claims, of its devices on a node.
func (c *Cluster) StatusesOn(node string) []*Status { return c.statuses[node] }
