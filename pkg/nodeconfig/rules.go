package nodeconfig

import (
	"cmp"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// rules are a config's rules on their way over a snapshot.
type rules struct {
	list []rule
	// standard is set for the default rules, which are no one's mistake when
	// they don't fit the node.
	standard bool
}

// rule is one rule with what it met.
type rule struct {
	*v1alpha1.DeviceRule
	label string
	// hits counts the functions that the rule matches, decided by it or not.
	hits int
	// refused are the functions that it would take and must not.
	refused []refusal
}

// refusal is a function that must not be taken, and why.
type refusal struct {
	addr pci.Address
	why  string
}

func newRules(cfg *v1alpha1.NodeConfig) *rules {
	if cfg == nil || cfg.Devices == nil {
		gpusAndVFs := &v1alpha1.DeviceRule{
			Match:  v1alpha1.DeviceMatch{Types: []string{string(device.GPU), string(device.VFType)}},
			Policy: v1alpha1.PolicyOnDemand,
		}
		return &rules{list: []rule{{DeviceRule: gpusAndVFs, label: "default"}}, standard: true}
	}
	set := &rules{list: make([]rule, len(cfg.Devices))}
	for i := range cfg.Devices {
		set.list[i] = rule{DeviceRule: &cfg.Devices[i], label: label(i, cfg.Devices[i].Name)}
	}
	return set
}

// label names the i-th rule, counted from 1: "rule 2 (gpus)".
func label(i int, name string) string {
	if name == "" {
		return fmt.Sprintf("rule %d", i+1)
	}
	return fmt.Sprintf("rule %d (%s)", i+1, name)
}

// choose lets the first rule that matches f decide.
func (set *rules) choose(s *device.Snapshot, f *device.Function) Choice {
	why := forbidden(s, f)
	decided := set.first(s, f)
	choice := Choice{Forbidden: why != "", Why: why}
	if decided != nil {
		choice.Rule = decided.label
	}
	switch {
	case choice.Forbidden && decided != nil && !decided.Exclude:
		decided.refused = append(decided.refused, refusal{f.Address, why})
	case choice.Forbidden:
	case decided == nil:
		choice.Why = set.unmatched()
	case decided.Exclude:
		choice.Why = decided.label + " of the node config excludes it"
	default:
		choice.Ours = true
		choice.Policy = cmp.Or(decided.Policy, v1alpha1.PolicyOnDemand)
	}
	return choice
}

// first returns the first rule that matches f, nil for none, and counts the
// match with every rule that does.
func (set *rules) first(s *device.Snapshot, f *device.Function) *rule {
	var first *rule
	for i := range set.list {
		r := &set.list[i]
		if !matches(&r.Match, s, f) {
			continue
		}
		r.hits++
		if first == nil {
			first = r
		}
	}
	return first
}

func (set *rules) unmatched() string {
	if set.standard {
		return "it is neither a GPU nor a VF, and no node config names it"
	}
	return "no rule of the node config matches it"
}

// problems reports where the rules didn't fit, once choose has seen every
// function.
func (set *rules) problems(s *device.Snapshot) []Problem {
	if set.standard {
		return nil
	}
	var all []Problem
	for i := range set.list {
		all = append(all, set.list[i].problems(s)...)
	}
	return all
}

func (r *rule) problems(s *device.Snapshot) []Problem {
	var all []Problem
	for _, addr := range r.Match.Addresses {
		if _, ok := s.Function(addr); !ok {
			all = append(all, Problem{
				r.label, fmt.Sprintf("names %s, which this node doesn't have", addr),
				"correct or remove the address; kata-vfio-audit devices lists what is here",
			})
		}
	}
	if r.hits == 0 && len(all) == 0 {
		all = append(all, Problem{
			r.label, "matches no function of this node",
			"correct or remove the rule; kata-vfio-audit devices lists what is here",
		})
	}
	for _, f := range r.refused {
		all = append(all, Problem{
			r.label, fmt.Sprintf("matches %s, which must not be taken: %s", f.addr, f.why),
			"free the function of that, or exclude it by a rule before this one",
		})
	}
	return all
}
