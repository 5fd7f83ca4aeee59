package nodeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// rules are the rules of a config while they are applied to a snapshot.
type rules struct {
	list []deviceRule
	// standard is set for the default rules. It is not a mistake in the config if these don't fit the node.
	standard bool
	// slices permit slices of GPUs.
	slices []sliceRule
}

// deviceRule is one rule of the config with its matches.
type deviceRule struct {
	*v1alpha1.DeviceRule
	label string
	// hits counts the functions that the rule matches, whether or not it decides about them.
	hits int
	// refused are the functions that the rule selects although they must not be taken.
	refused []refusal
	// unshareable are the functions that the rule would share although they can't be shared.
	unshareable []refusal
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
		return &rules{list: []deviceRule{{DeviceRule: gpusAndVFs, label: "default"}}, standard: true, slices: newSliceRules(cfg)}
	}
	set := &rules{list: make([]deviceRule, len(cfg.Devices)), slices: newSliceRules(cfg)}
	for i := range cfg.Devices {
		set.list[i] = deviceRule{DeviceRule: &cfg.Devices[i], label: label(i, cfg.Devices[i].Name)}
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
	code, why := forbidden(s, f)
	// The rules are also applied to a forbidden function, so that its rule counts a match and reports the refusal.
	decided := set.first(s, f)
	choice := Choice{Forbidden: why != "", Why: why, Code: code}
	if decided != nil {
		choice.Rule, choice.Name = decided.label, decided.Name
	}
	switch {
	case choice.Forbidden && decided != nil && !decided.Exclude:
		decided.refused = append(decided.refused, refusal{f.Address, why})
	case choice.Forbidden:
	case decided == nil:
		choice.Why = set.unmatched(f)
	case decided.Exclude:
		choice.Why = decided.label + " of the node config excludes it"
	default:
		choice.Slice, choice.Why = set.sliced(s, f)
		choice.describeSlice(s, f)
		if choice.Why != "" {
			choice.Code = rule.GPUNotSliced
			return choice
		}
		choice.Ours = true
		choice.Policy = cmp.Or(decided.Policy, v1alpha1.PolicyOnDemand)
		choice.SharedWith = decided.SharedWith
		choice.Sanitize = decided.Sanitize
		choice.Exclusive, choice.ReserveDomains = decided.Exclusive, decided.ReserveDomains
	}
	return choice
}

// first returns the first rule that matches f, or nil. It counts the match for every rule that matches.
func (set *rules) first(s *device.Snapshot, f *device.Function) *deviceRule {
	var first *deviceRule
	for i := range set.list {
		r := &set.list[i]
		if !matches(&r.Match, s, f) || !r.Exclude && !means(&r.Match, f) {
			continue
		}
		r.hits++
		if first == nil {
			first = r
		}
	}
	return first
}

func (set *rules) unmatched(f *device.Function) string {
	if f.IsBMCDisplay() {
		return "it is the display of the management controller (BMC), and no rule of the node config names its device ID or address"
	}
	if f.ManagesSwitches() {
		return "it manages the NVSwitches of the GPUs, and no rule of the node config names its address"
	}
	if f.IsSwitchPart() {
		return "it is part of a switch, such as an NVSwitch, and no rule of the node config names its type, class, device ID or address"
	}
	if set.standard {
		return "it is neither a GPU nor the VF of a NIC, and no node config names it"
	}
	return "no rule of the node config matches it"
}

// problems returns where the rules don't fit the node. Call it after choose has seen every function.
func (set *rules) problems(s *device.Snapshot) []rule.Verdict {
	all := set.sliceProblems(s)
	if set.standard {
		return all
	}
	for i := range set.list {
		all = append(all, set.list[i].problems(s)...)
	}
	return all
}

func (r *deviceRule) problems(s *device.Snapshot) []rule.Verdict {
	var all []rule.Verdict
	for _, addr := range r.Match.Addresses {
		if _, ok := s.Function(addr); !ok {
			all = append(all, problem(
				r.label, fmt.Sprintf("names %s, which this node doesn't have", addr),
				"correct or remove the address; kata-vfio-audit devices lists the node's functions",
			))
		}
	}
	// An address that the node lacks already explains why nothing matches.
	if r.hits == 0 && len(all) == 0 {
		all = append(all, problem(
			r.label, "matches no function of this node",
			"correct or remove the rule; kata-vfio-audit devices lists the node's functions",
		))
	}
	for _, f := range r.refused {
		fix := "free the function of that, or exclude it by a rule before this one"
		if at, ok := s.Function(f.addr); ok && at.IsBridge() {
			fix = "remove it from the rule, and name the functions below it if tenants may have them"
		}
		all = append(all, problem(r.label, fmt.Sprintf("matches %s, which must not be taken: %s", f.addr, f.why), fix))
	}
	for _, f := range r.unshareable {
		all = append(all, problem(
			r.label, fmt.Sprintf("matches %s, which can't be shared: %s", f.addr, f.why),
			"give it to one driver: remove sharedWith, or exclude it by a rule before this one",
		))
	}
	return all
}

// matches reports whether f is everything that m asks for.
func matches(m *v1alpha1.DeviceMatch, s *device.Snapshot, f *device.Function) bool {
	if f.IsBridge() && len(m.Addresses) == 0 {
		return false // a rule for a vendor or a class does not mean bridges
	}
	return among(m.Types, string(f.Type)) &&
		among(m.Vendors, f.Vendor) &&
		among(m.Devices, f.Device) &&
		among(m.Addresses, f.Address) &&
		amongClasses(m.Classes, f.Class) &&
		amongPFs(m.PFNames, s, f)
}

// means reports whether a match that matches f also means f. Some functions go to a tenant only if the operator names them. NVSwitches and
// similar functions serve all GPUs of the board, so a match by vendor alone doesn't mean them. A ConnectX function that manages NVSwitches
// is meant only by its address. The display of the management controller has the class of a display, but its tenant may reach the
// controller, so only its device ID or address means it.
func means(m *v1alpha1.DeviceMatch, f *device.Function) bool {
	named := len(m.Devices)+len(m.Addresses) > 0
	switch {
	case f.IsBMCDisplay():
		return named
	case f.ManagesSwitches(): // its class and ID are those of NICs
		return len(m.Addresses) > 0
	case f.IsSwitchPart():
		return named || len(m.Types)+len(m.Classes) > 0
	}
	return true
}

// among reports whether v is in the list, or the list is empty.
func among[T comparable](list []T, v T) bool {
	return len(list) == 0 || slices.Contains(list, v)
}

// amongClasses reports whether the code begins with the digits of one of the
// prefixes.
func amongClasses(prefixes []string, class pci.Class) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		digits, err := strconv.ParseUint(prefix, 16, 24)
		return err == nil && len(prefix) <= 6 && uint64(class)>>(24-4*len(prefix)) == digits
	})
}

// amongPFs reports whether f is a VF of a PF with one of the netdev names.
func amongPFs(netdevs []string, s *device.Snapshot, f *device.Function) bool {
	if len(netdevs) == 0 {
		return true
	}
	if f.VF == nil {
		return false
	}
	pf, ok := s.Function(f.VF.PF)
	return ok && slices.ContainsFunc(pf.Children.Net, func(netdev string) bool {
		return slices.Contains(netdevs, netdev)
	})
}
