// Package nodeconfig decides which functions of a node are ours and when they
// are bound, from the node's configuration and a snapshot. It is pure.
package nodeconfig

import (
	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Choice is what the config says of one function.
type Choice struct {
	// Ours is true when kata-vfio may take the function.
	Ours   bool                `json:"ours"`
	Policy v1alpha1.BindPolicy `json:"policy,omitempty"`
	// Rule is the name or number of the rule that decided: "rule 2 (gpus)", or
	// "default".
	Rule string `json:"rule,omitempty"`
	// Why says why the function is not ours, as a phrase that completes
	// "0000:3b:00.0 is not ours: ...": no rule matches it, rule 2 excludes it,
	// it is a bridge, netdev eth0 has address 10.0.0.5/24. Empty when Ours.
	Why string `json:"why,omitempty"`
	// Forbidden is true when the function must never be taken, whatever the
	// config says (DESIGN "What may be taken"); Why names the reason.
	Forbidden bool `json:"forbidden,omitempty"`
}
