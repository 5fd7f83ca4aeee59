package check

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Enforcement says which failed checks keep a function from claims. The plugin's monitor, the plugin's commands and the tables of
// the audit use it, so that they agree about each device.
type Enforcement struct {
	// Profile is the node's purpose, which determines the severity of checks.
	Profile finding.Profile
	// Counts is the least severity at which a failed check keeps functions from claims. With [finding.Off], no failed check does.
	Counts rule.Severity
	// Waivers are the accepted failures, and Today is the day that they are compared with, "2026-11-22".
	Waivers []finding.Waiver
	Today   string
	// Checks are the checks that are run, see [Checks]. If there are none, every function fails ([Enforcement.Ask]).
	Checks []Check
}

// Checks returns the checks that can keep a function from claims: the cheap ones ([rule.Rule.Cheap]).
func Checks(all []Check) []Check {
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool { return !c.Rule.Cheap })
}

// unasked is the check that fails if no check is asked.
const unasked = "OBS-004"

// Ask runs the checks on a node. Without checks, the node is not known to be fit, so it fails as a whole.
func (g *Enforcement) Ask(n *facts.Node) []finding.Finding {
	if len(g.Checks) == 0 {
		return []finding.Finding{{ID: unasked, State: finding.Fail, Severity: rule.Critical, Text: "no check was asked of the node"}}
	}
	return Run(n, g.Checks, Options{Profile: g.Profile, Waivers: g.Waivers, Today: g.Today}).Findings
}

// Judge runs the checks on a node, and returns the failures that count. A function that is being prepared or released may be in a
// transient state, so its own failures are left out.
func (g *Enforcement) Judge(n *facts.Node) *Failures {
	if g.Counts == finding.Off {
		return &Failures{}
	}
	findings := g.Ask(n)
	found := g.Weigh(findings, func(a pci.Address, _ rule.Failure) bool { return InTransition(n, a) })
	found.UnusedWaivers = finding.Unused(g.Waivers, findings)
	return found
}

// Weigh returns the failures among the findings that count. It leaves out failures of static rules ([rule.Rule.Static]), and a failure
// of a function if a waiver accepts it or wait returns true for both.
func (g *Enforcement) Weigh(findings []finding.Finding, wait func(pci.Address, rule.Failure) bool) *Failures {
	found := &Failures{Devices: map[pci.Address][]rule.Failure{}, waivers: g.Waivers, today: g.Today}
	static := g.staticRules()
	for i := range findings {
		f := &findings[i]
		if f.State != finding.Fail || static[f.ID] || g.Counts == finding.Off || f.Severity.Compare(g.Counts) > 0 {
			continue
		}
		failure := rule.Failure{ID: f.ID, Severity: f.Severity}
		if len(f.Devices) == 0 {
			found.Node = append(found.Node, failure)
		}
		for _, a := range f.Devices {
			if !wait(a, failure) && !finding.WaivedFor(g.Waivers, g.Today, f.ID, a) {
				found.Devices[a] = append(found.Devices[a], failure)
			}
		}
	}
	found.sort()
	return found
}

// staticRules returns the rules whose failure no configuration repairs.
func (g *Enforcement) staticRules() map[string]bool {
	static := map[string]bool{}
	for _, c := range g.Checks {
		static[c.ID] = c.Rule.Static
	}
	return static
}

// InTransition reports whether a claim's record says that a function is being prepared or released.
func InTransition(n *facts.Node, a pci.Address) bool {
	return slices.ContainsFunc(n.TenanciesAt(a), func(t facts.Tenancy) bool {
		return t.Record.State != journal.Prepared && t.Record.State != journal.Quarantined
	})
}

// Failures are the failures that count, the worst first and each rule once.
type Failures struct {
	// Node are those of the whole node.
	Node []rule.Failure
	// Devices are those of functions.
	Devices map[pci.Address][]rule.Failure
	// UnusedWaivers are the waivers that match no failure. Only [Enforcement.Judge] sets them.
	UnusedWaivers []finding.Waiver
	// waivers and today decide which failures of the whole node are accepted for single functions.
	waivers []finding.Waiver
	today   string
}

func (f *Failures) sort() {
	f.Node = rule.WorstFirst(f.Node)
	for a, failures := range f.Devices {
		f.Devices[a] = rule.WorstFirst(failures)
	}
}

// Of returns the failures of a function, including those of the whole node. Callers must not change the slice.
func (f *Failures) Of(a pci.Address) []rule.Failure {
	node, own := f.nodeFor(a), f.Devices[a]
	if len(own) == 0 {
		return node
	}
	return rule.WorstFirst(slices.Concat(node, own))
}

// nodeFor returns the failures of the whole node that count for a function.
func (f *Failures) nodeFor(a pci.Address) []rule.Failure {
	isWaived := func(failure rule.Failure) bool { return finding.WaivedFor(f.waivers, f.today, failure.ID, a) }
	if !slices.ContainsFunc(f.Node, isWaived) {
		return f.Node
	}
	return slices.DeleteFunc(slices.Clone(f.Node), isWaived)
}

// IDs returns the IDs of a function's failures, as [plan.Node.Failing] has them.
func (f *Failures) IDs(a pci.Address) []string { return ListIDs(f.Of(a)) }

// ListIDs returns the IDs of failures, in their order.
func ListIDs(failures []rule.Failure) []string {
	var ids []string
	for _, f := range failures {
		ids = append(ids, f.ID)
	}
	return ids
}
