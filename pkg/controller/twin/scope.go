package twin

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// A Scope says what an object concerns: a node, a pool of another driver, or every node. A decision about one node needs the
// objects with the scopes of [Scopes], and no others.
type Scope string

// everyNode is the scope of a claim that may have a device of any node.
const everyNode Scope = "every"

// nodePrefix begins the scope of one node.
const nodePrefix = "node/"

// NodeScope returns the scope of an object that is known to be on a node, or the scope of every node for "".
func NodeScope(name string) Scope {
	if name == "" {
		return everyNode
	}
	return Scope(nodePrefix + name)
}

// Node returns the node of a scope of [NodeScope], and false for another scope and for every node.
func (s Scope) Node() (string, bool) { return strings.CutPrefix(string(s), nodePrefix) }

// poolScope returns the scope of an object that names a device of another driver. The device's slices say on which node it is.
func poolScope(driver, pool string) Scope { return Scope("pool/" + driver + "/" + pool) }

// Scopes returns the scopes of the claims and rules that concern a node with the slices.
func Scopes(node string, all []*resourceapi.ResourceSlice) []Scope {
	scopes := []Scope{everyNode, NodeScope(node)}
	for _, s := range all {
		if s.Spec.Driver != v1alpha1.DriverName {
			scopes = append(scopes, poolScope(s.Spec.Driver, s.Spec.Pool.Name))
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// RuleScopes returns the scope of a rule: the node where its GPU is, or the pool of the device that it names.
func RuleScopes(r *resourceapi.DeviceTaintRule) []Scope {
	target := ruleTarget(r)
	if at, ok := rulePlace(r, target); ok {
		return []Scope{NodeScope(at.Node)}
	}
	if target == (cluster.ID{}) || target.IsOurs() {
		return nil
	}
	return []Scope{poolScope(target.Driver, target.Pool)}
}

// ClaimScopes returns the scopes of a claim, from its devices of kata-vfio and of the drivers.
func ClaimScopes(c *cluster.Claim, drivers []string) []Scope {
	var scopes []Scope
	for _, id := range c.Owned() {
		switch {
		case id.IsOurs():
			if at, ok := ourPlace(id); ok {
				scopes = append(scopes, NodeScope(at.Node))
			}
		case slices.Contains(drivers, id.Driver):
			scopes = append(scopes, poolScope(id.Driver, id.Pool), NodeScope(c.Node))
		}
	}
	return scopes
}
