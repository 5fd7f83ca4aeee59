package view

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// A Scope is what an object concerns: a node, a pool of another driver, or every node. A decision about one node needs
// the objects with the scopes of [ScopesOn], and no others.
type Scope string

// EveryNode is the scope of a claim that may have a device of any node.
const EveryNode Scope = "every"

// ScopeOfNode is the scope of what is known to be on a node.
func ScopeOfNode(name string) Scope { return Scope("node/" + name) }

// scopeOfPool is the scope of what names a device of another driver. Its slices say on which node it is.
func scopeOfPool(driver, pool string) Scope { return Scope("pool/" + driver + "/" + pool) }

// ScopesOn returns the scopes of the claims and rules that concern a node with the slices.
func ScopesOn(node string, all []*resourceapi.ResourceSlice) []Scope {
	scopes := []Scope{EveryNode, ScopeOfNode(node)}
	for _, s := range all {
		if s.Spec.Driver != v1alpha1.DriverName {
			scopes = append(scopes, scopeOfPool(s.Spec.Driver, s.Spec.Pool.Name))
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// ScopesOfSlice returns the scope of a slice's node. A slice of no node has none: nothing is decided on it.
func ScopesOfSlice(s *resourceapi.ResourceSlice) []Scope {
	var scopes []Scope
	for _, n := range NodesOfSlice(s) {
		scopes = append(scopes, ScopeOfNode(n))
	}
	return scopes
}

// ScopesOfRule returns the scope of a rule: the node where its GPU is, or the pool of the device that it names.
func ScopesOfRule(r *resourceapi.DeviceTaintRule) []Scope {
	target := targetOf(r)
	if at, ok := placeByName(r, target); ok {
		return []Scope{ScopeOfNode(at.node)}
	}
	if target == (twin.Device{}) || target.Driver == v1alpha1.DriverName {
		return nil
	}
	return []Scope{scopeOfPool(target.Driver, target.Pool)}
}

// ScopesOfClaim returns the scopes of the devices of ours and of the drivers that a claim has.
func ScopesOfClaim(claim *resourceapi.ResourceClaim, drivers []string) []Scope {
	var scopes []Scope
	for _, d := range owned(claim) {
		switch {
		case d.Driver == v1alpha1.DriverName:
			if at, ok := ourPlace(d.Pool, d.Device); ok {
				scopes = append(scopes, ScopeOfNode(at.node))
			}
		case slices.Contains(drivers, d.Driver):
			scopes = append(scopes, scopeOfPool(d.Driver, d.Pool), scopeOfNodeOr(nodeOf(claim)))
		}
	}
	return scopes
}

// scopeOfNodeOr returns the scope of a node, and that of every node for none.
func scopeOfNodeOr(node string) Scope {
	if node == "" {
		return EveryNode
	}
	return ScopeOfNode(node)
}
