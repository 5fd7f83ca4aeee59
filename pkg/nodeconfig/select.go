package nodeconfig

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Default returns the config of a node without one: the default rules, by
// which every display, 3D and processing accelerator function and every VF is
// ours, on demand.
func Default() *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{}
	c.Default()
	return c
}

// Selection says of every function of a snapshot whether it is ours. It is
// immutable, like the snapshot that it was made from.
type Selection struct {
	functions []device.Function
	choices   []Choice // of functions, in their order
	problems  []Problem
	pairs     []device.Pair
}

// Select applies a node's config to a snapshot. The config must be valid (as
// [v1alpha1.DecodeNodeConfig] returns it); nil stands for [Default]. Whether a
// function's IOMMU group can be taken as a whole is not looked at here:
// package isolation judges that.
func Select(cfg *v1alpha1.NodeConfig, s *device.Snapshot) *Selection {
	set := newRules(cfg)
	sel := &Selection{functions: s.Functions, choices: make([]Choice, len(s.Functions))}
	for i := range s.Functions {
		sel.choices[i] = set.choose(s, &s.Functions[i])
	}
	sel.problems = set.problems(s)
	if cfg != nil {
		sel.pair(cfg.Pairing, s)
	}
	return sel
}

// Choice returns what the config says of the function at addr. An absent
// function is not ours.
func (sel *Selection) Choice(addr pci.Address) Choice {
	i, ok := slices.BinarySearchFunc(sel.functions, addr, func(f device.Function, a pci.Address) int {
		return f.Address.Compare(a)
	})
	if !ok {
		return Choice{Why: "this node has no such function"}
	}
	return sel.choices[i]
}

// Ours returns the functions that are ours, by address. The pointers are into
// the snapshot: read, don't write.
func (sel *Selection) Ours() []*device.Function {
	var ours []*device.Function
	for i := range sel.functions {
		if sel.choices[i].Ours {
			ours = append(ours, &sel.functions[i])
		}
	}
	return ours
}

// Problems returns where config and node don't fit together, in the order of
// the rules. The selection is safe to use all the same: a rule that doesn't
// fit takes nothing.
func (sel *Selection) Problems() []Problem { return sel.problems }

// Problem is one place where config and node don't fit together.
type Problem struct {
	// Rule names the rule as [Choice.Rule] does.
	Rule string `json:"rule"`
	// Text says what doesn't fit, as a phrase that follows the rule's name:
	// "names 0000:3b:00.0, which this node doesn't have".
	Text string `json:"text"`
	// Fix says what to do about it.
	Fix string `json:"fix"`
}

// String returns rule, text and fix in one line.
func (p Problem) String() string { return fmt.Sprintf("%s %s; %s", p.Rule, p.Text, p.Fix) }
