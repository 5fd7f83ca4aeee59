// Package nodeconfig decides which functions of a node are ours and when they
// are bound, from the node's configuration and a snapshot. It is pure.
package nodeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Choice is what the config says of one function.
type Choice struct {
	// Ours is true when kata-vfio may take the function.
	Ours   bool                `json:"ours"`
	Policy v1alpha1.BindPolicy `json:"policy,omitempty"`
	// SharedWith is the DRA driver that the function is shared with; empty if there is none.
	SharedWith string `json:"sharedWith,omitempty"`
	// Sanitize is the stage that the function passes between two tenants; nil if there is none.
	Sanitize *v1alpha1.SanitizeRule `json:"sanitize,omitempty"`
	// Slice is the rule of gpuSlices that permits a slice; nil for other functions.
	Slice *v1alpha1.GPUSliceRule `json:"slice,omitempty"`
	// Profile is the profile of a slice in its vendor's words: by the rule, or else, as for slices of AMD, by the snapshot. Memory is the
	// slice's memory in bytes by the rule; 0 if the rule does not say it.
	Profile string `json:"-"`
	Memory  uint64 `json:"-"`
	// Exclusive are the domains around the function that belong to one tenant at a time.
	Exclusive []v1alpha1.ExclusiveDomain `json:"exclusive,omitempty"`
	// ReserveDomains says that pods wait until the exclusive domains are reserved for their tenant.
	ReserveDomains bool `json:"reserveDomains,omitempty"`
	// Rule is the name or number of the rule that decided: "rule 2 (gpus)", or
	// "default".
	Rule string `json:"rule,omitempty"`
	// Name is the name that the config gives the rule; empty if there is none.
	Name string `json:"-"`
	// Why says why the function is not ours, as a phrase that completes
	// "0000:3b:00.0 does not belong to kata-vfio: ...": no rule matches it, rule 2 excludes it,
	// it is a bridge, netdev eth0 has address 10.0.0.5/24. Empty when Ours.
	Why string `json:"why,omitempty"`
	// Forbidden is true if the function must never be taken, whatever the config says; Why names the reason.
	Forbidden bool `json:"forbidden,omitempty"`
	// Code is the code of the reason in Why, if that reason has a code of its own; see [Choice.Against].
	Code rule.Code `json:"code,omitempty"`
}

// Against returns the code of the reason why the function is not ours; empty when it is.
func (c *Choice) Against() rule.Code {
	switch {
	case c.Ours:
		return ""
	case c.Code != "":
		return c.Code
	case c.Forbidden:
		return rule.Forbidden
	}
	return rule.NotOurs
}

// Default returns the config of a node without one: its rules select every display, 3D and processing accelerator
// function and every VF, on demand.
func Default() *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{}
	c.Default()
	return c
}

// Selection says for every function of a snapshot whether it is selected. It is immutable, like its snapshot.
type Selection struct {
	functions []device.Function
	choices   []Choice // of functions, in their order
	problems  []rule.Verdict
	pairs     []device.Pair
	fabric    *Fabric
	ofVFs     v1alpha1.VFAttributes
	quotas    bool
	warm      []Warm
}

// Select applies a node's config to a snapshot. The config must be valid (as [v1alpha1.DecodeNodeConfig] returns
// it); nil means [Default]. Package isolation judges whether a function's IOMMU group can be taken as a whole.
func Select(cfg *v1alpha1.NodeConfig, s *device.Snapshot) *Selection {
	set := newRules(cfg)
	sel := &Selection{functions: s.Functions, choices: make([]Choice, len(s.Functions))}
	for i := range s.Functions {
		sel.choices[i] = set.choose(s, &s.Functions[i])
	}
	// This comes first: it adds to the rules' problems, and withdraws functions that the later steps would count or pair.
	sel.separate(set, s)
	sel.problems = set.problems(s)
	sel.keepWarm(set)
	if cfg != nil {
		sel.pair(cfg.Pairing, s)
		sel.join(cfg.Fabric, s)
		sel.ofVFs, sel.quotas = cfg.VFAttributes, cfg.QuotaCounters
	}
	return sel
}

// VFAttributes says how much of each VF is published.
func (sel *Selection) VFAttributes() v1alpha1.VFAttributes {
	return cmp.Or(sel.ofVFs, v1alpha1.VFAttributesAll)
}

// QuotaCounters reports whether each GPU has counters for quotas.
func (sel *Selection) QuotaCounters() bool { return sel.quotas }

// Choice returns the config's decision on the function at addr. A function that does not exist is not selected.
func (sel *Selection) Choice(addr pci.Address) Choice {
	i, ok := device.Index(sel.functions, addr)
	if !ok {
		return Choice{Why: "this node has no such function"}
	}
	return sel.choices[i]
}

// Sanitizes reports whether a rule asks for a sanitizing stage of one of the functions.
func (sel *Selection) Sanitizes() bool {
	return slices.ContainsFunc(sel.choices, func(c Choice) bool { return c.Sanitize != nil })
}

// Ours returns the functions that kata-vfio may take, by address. The pointers are into the snapshot: don't change the functions.
func (sel *Selection) Ours() []*device.Function {
	var ours []*device.Function
	for i := range sel.functions {
		if sel.choices[i].Ours {
			ours = append(ours, &sel.functions[i])
		}
	}
	return ours
}

// Problems returns where config and node don't fit together, in the order of the rules. [rule.Verdict.Object] is the label of the
// rule. The selection is still safe to use: a rule that doesn't fit selects nothing.
func (sel *Selection) Problems() []rule.Verdict { return sel.problems }

// problem returns the verdict on one place where config and node don't fit together. The label names the rule, as [Choice.Rule] does.
func problem(label, text, fix string) rule.Verdict {
	return rule.Verdict{Code: rule.ConfigDoesNotFit, Object: label, Text: label + " " + text, Fix: fix}
}

// forbidden returns why f must never be taken, whatever the config says, as the values of [Choice.Code] and [Choice.Why]. Both are empty if
// f may be taken.
func forbidden(s *device.Snapshot, f *device.Function) (rule.Code, string) {
	why := ""
	switch {
	case f.IsBridge():
		why = "it is a bridge"
	case len(f.Uses) > 0 && !f.IsReserved(): // a reserved function may be selected: plan refuses claims for it
		why = uses(f)
	case f.MayManageSwitches() != "":
		why = f.MayManageSwitches()
	case f.StaysOnHost() != "":
		return rule.PFStaysOnHost, f.StaysOnHost()
	case f.PF != nil && f.PF.NumVFs > 0:
		why = fmt.Sprintf("it is a PF with VFs enabled (%d), which binding it would destroy", f.PF.NumVFs)
	case f.VF != nil:
		why = ofTenantsPF(s, f)
	}
	return "", why
}

// uses lists what the node itself needs f for.
func uses(f *device.Function) string {
	phrases := make([]string, len(f.Uses))
	for i, use := range f.Uses {
		phrases[i] = use.String()
	}
	return strings.Join(phrases, ", ")
}

// ofTenantsPF returns why the VF f can't be assigned if its PF may be in a VM; empty if it can. The owner of the PF would control the VF.
func ofTenantsPF(s *device.Snapshot, f *device.Function) string {
	pf, ok := s.Function(f.VF.PF)
	if !ok || !device.IsVFIO(pf.Driver) {
		return ""
	}
	return fmt.Sprintf("its PF %s is on %s and may be a tenant's", pf.Address, pf.Driver)
}
