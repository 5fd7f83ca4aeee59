package stage

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// A Scope says what an object concerns. A decision needs the slices of [WaitingScope], the claims and pods of the stages'
// namespace, and all objects of the nodes that these concern, so that its cost does not grow with the cluster.
type Scope string

const (
	// WaitingScope is the scope of slices with a device that waits for a stage.
	WaitingScope Scope = "waiting"
	// OwnScope is the scope of the claims of stages.
	OwnScope Scope = "stages"
)

// NodeScope returns the scope of the objects that concern a node.
func NodeScope(node string) Scope { return Scope("node/" + node) }

// SliceScopes returns the scopes of a slice, or none if it is of another driver or of no node.
func SliceScopes(s *resourceapi.ResourceSlice) []Scope {
	if s.Spec.Driver != v1alpha1.DriverName || s.Spec.NodeName == nil {
		return nil
	}
	scopes := []Scope{NodeScope(*s.Spec.NodeName)}
	if slices.ContainsFunc(s.Spec.Devices, waits) {
		scopes = append(scopes, WaitingScope)
	}
	return scopes
}

func waits(d resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintSanitizing })
}

// ClaimScopes returns the scopes of a claim: [OwnScope] for a claim of a stage, and those of the nodes on which the claim has
// kata-vfio's devices to itself.
func ClaimScopes(c *cluster.Claim, s *v1alpha1.Sanitizers) []Scope {
	var scopes []Scope
	if c.Object.Namespace == s.Namespace {
		scopes = append(scopes, OwnScope)
	}
	for _, id := range c.Owned() {
		if id.IsOurs() {
			scopes = append(scopes, NodeScope(id.Node()))
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}
