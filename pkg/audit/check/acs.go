package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// acsChecks returns the checks of group ACS: requests from one function to another go through the IOMMU.
func acsChecks() []Check {
	return slices.Concat(pathChecks(), sharedDomainChecks(), nodeACSChecks())
}

// pathChecks are about the ports above functions.
func pathChecks() []Check {
	return []Check{
		{ID: "ACS-001", Judge: portsRedirect},
		{ID: "ACS-002", Judge: func(n *facts.Node) Answer {
			// A function is the device of its own finding. Ports, which are objects, are those of ACS-001.
			own := slices.DeleteFunc(unreadableACS(n), func(f finding.Finding) bool { return f.Device == nil })
			found := append(because(n, rule.PeerToPeerPossible, func(r *rule.Verdict) bool { return r.Culprit == nil }), own...)
			return ofAssignable(n, found, func(f *device.Function) []facts.Fact { return []facts.Fact{groupFact(f), acsRegisters(f)} })
		}},
		{ID: "ACS-008", Judge: shownInRegisters},
		{ID: "ACS-004", Judge: translationBlocked},
		{ID: "ACS-005", Judge: noEgressControl},
		{ID: "ACS-010", Judge: func(n *facts.Node) Answer {
			return each(n, func(f *device.Function) []facts.Fact { return above(n, f) }, func(f *device.Function) Answer { return onConventionalBus(n, f) })
		}},
		{ID: "ACS-014", Judge: errorsContained},
	}
}

// shownInRegisters leaves a function that only a quirk of the kernel isolates to a person, who must find the vendor's statement. If
// pcie_acs_override is in use, no quirk can be trusted.
func shownInRegisters(n *facts.Node) Answer {
	found := because(n, rule.ACSUnproven, nil)
	// With the override, a function may be alone in its group because of the argument and not because of a quirk. So a function
	// without ACS registers fails.
	if len(n.RunningArguments("pcie_acs_override")) == 0 {
		found.as(finding.Manual)
	}
	return ofAssignable(n, append(found, unreadableACS(n)...), way(n))
}

// portsRedirect reports the verdict on each function, which compares the kernel's groups with the registers. If a port's
// registers do not confirm the kernel's groups, a person has to judge it: that is not a pass.
func portsRedirect(n *facts.Node) Answer {
	said := ofAssignable(n, slices.Concat(
		because(n, rule.PeerToPeerPossible, func(r *rule.Verdict) bool { return r.Culprit != nil }),
		because(n, rule.ACSUnproven, func(r *rule.Verdict) bool { return isPort(n, r.Culprit) }).as(finding.Manual),
		unreadableACS(n),
	), way(n))
	if inside := portsInside(n); len(inside) > 0 && said[0].State == finding.Pass {
		said[0].Text += fmt.Sprintf("; %s without redirection (%s), in one IOMMU group with all functions below",
			count(len(inside), "port"), joinNames(inside))
	}
	return said
}

func isPort(n *facts.Node, a *pci.Address) bool {
	if a == nil {
		return false
	}
	f, ok := n.Snapshot.Function(*a)
	return ok && f.IsBridge()
}

// portsInside names the ports whose registers don't redirect requests and which are in the group of the functions below
// them. Such a group is assigned as a whole, so the requests that the port forwards stay with one tenant.
func portsInside(n *facts.Node) []string {
	var names []string
	for _, p := range ports(n) {
		if redirectsNothing(n, p.function) {
			names = append(names, p.function.Address.String())
		}
	}
	return names
}

func redirectsNothing(n *facts.Node, p *device.Function) bool {
	state := isolation.ReadACS(n.Snapshot, p)
	return state == isolation.ACSAbsent || state == isolation.ACSOff
}

// unreadableACS is unknown for functions and ports whose registers can't be read. It leaves out ports whose registers are readable,
// but not of the standard's form, as those of Intel's PCH. The kernel's group is the answer for them.
func unreadableACS(n *facts.Node) Answer {
	return slices.DeleteFunc(because(n, rule.ACSUnreadable, nil).as(finding.Unknown), func(f finding.Finding) bool {
		return f.Device == nil && !slices.ContainsFunc(n.Snapshot.Functions, func(p device.Function) bool {
			return p.Capabilities.Truncated && f.Object == "port "+p.Address.String()
		})
	})
}

// translationBlocked fails for ports that could block translated requests, do not, and have no function with ATS below.
func translationBlocked(n *facts.Node) Answer {
	translating := functionsWhere(n, func(f *device.Function) bool { return isEnabled(f.Capabilities.ATS) })
	fix := "" // the rule's
	// The rule's fix also offers pci=noats, which would switch off the ATS that a coherent GPU needs.
	if isolation.HasCoherentGPU(n.Snapshot) {
		fix = "enable translation blocking by `pci=config_acs=` on the kernel command line"
	}
	return portsThat(n, verb{"doesn't block translated requests", "don't block translated requests"}, ", though no function below has ATS", acsRegisters, func(p *port) bool {
		acs := p.function.Capabilities.ACS
		return acs != nil && acs.Capability&^acs.Control&pci.ACSTranslationBlocking != 0 &&
			!slices.ContainsFunc(translating, func(f *device.Function) bool { return slices.Contains(f.Upstream, p.function.Address) })
	}).fix(fix)
}

func noEgressControl(n *facts.Node) Answer {
	// With egress control on, the port sends requests to a peer whose bit in the egress vector is clear directly, even
	// if redirection is on (PCI Express Base 6.12.3).
	return portsThat(n, verb{"has egress control on", "have egress control on"}, "", acsRegisters, func(p *port) bool {
		return p.function.Capabilities.ACS != nil && p.function.Capabilities.ACS.Control&pci.ACSEgressControl != 0
	})
}

// errorsContained leaves out ports without the capability of error containment.
func errorsContained(n *facts.Node) Answer {
	dpc := func(p *device.Function) facts.Fact { return switched(p, "DPC")[0] }
	return portsThat(n, verb{"has containment (DPC) off", "have containment (DPC) off"}, "", dpc, func(p *port) bool {
		return p.function.Capabilities.DPC != nil && !p.function.Capabilities.DPC.Enabled
	})
}

// verb is a phrase for one subject, and for several.
type verb struct{ one, many string }

func (v verb) of(n int) string {
	if n == 1 {
		return v.one
	}
	return v.many
}

// portsThat returns one finding for all ports for which so is true, because firmware and kernel arguments configure all
// ports alike.
func portsThat(n *facts.Node, are verb, more string, evidence func(*device.Function) facts.Fact, so func(*port) bool) Answer {
	var names []string
	var seen []facts.Fact
	var below []pci.Address
	all := ports(n)
	var hidden []*device.Function
	for _, p := range all {
		if p.function.Capabilities.Truncated {
			hidden = append(hidden, p.function)
		}
		if so(p) {
			names, seen, below = append(names, p.function.Address.String()), append(seen, evidence(p.function)), append(below, p.below...)
		}
	}
	switch {
	case len(all) == 0:
		return notApplicable("no assignable function is below a port")
	case len(names) > 0:
		slices.SortFunc(below, pci.Address.Compare)
		return fail(fmt.Sprintf("%s %s%s", joinNames(names), are.of(len(names)), more), seen...).reaching(slices.Compact(below)...)
	// A port with unreadable registers turns a pass into unknown, but does not change a failure, which the other ports already prove.
	case len(hidden) > 0:
		return unread("the settings of "+count(len(hidden), "port"), hidden[0])
	}
	return showing(pass(count(len(all), "port")), all, func(p *port) []facts.Fact { return []facts.Fact{evidence(p.function)} })
}

// joinNames lists the first names, and the number of the others.
func joinNames(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// onConventionalBus fails if there is a bridge to conventional PCI above a function.
func onConventionalBus(n *facts.Node, f *device.Function) Answer {
	for _, p := range upstream(n, f) {
		express := p.Capabilities.Express
		switch {
		case express == nil && p.Capabilities.Truncated:
			return unread("the type of bridge "+p.Address.String(), p)
		// The bridge sends requests from behind it with a requester ID of its own, so the IOMMU can't tell the functions
		// there apart (pci_for_each_dma_alias in drivers/pci/search.c).
		case express == nil, express.Type == pci.PCIeToPCI, express.Type == pci.PCIToPCIe:
			return fail(fmt.Sprintf("%s is below %s, a bridge to conventional PCI", f.Address, p.Address), config(p.Address, "PCI-Express to PCI/PCI-X bridge"))
		}
	}
	return nil
}

// acsDrift compares the control words with the baseline. It leaves out functions that came later, which ACS-012 reports.
func acsDrift(n *facts.Node) Answer {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	compared := 0
	found := over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		was, acs := baseline.Functions[f.Address].ACS, f.Capabilities.ACS
		switch {
		case was == nil, acs == nil && !f.Capabilities.Truncated, // the function came later, or another device has replaced it
			baseline.Compare(f.Address, n.Snapshot.Identify(f)) == facts.Replaced:
			return nil
		case acs == nil:
			return unread("the ACS control of "+f.Address.String(), f).on(f)
		}
		compared++
		if *was == acs.Control {
			return nil
		}
		return fail(driftText(f.Address, *was, acs.Control), acsRegisters(f), kept).
			fix(fmt.Sprintf("run `%s`, and find what changed it", isolation.SetACS(f.Address, *was))).reaching(belowPort(n, f.Address)...).on(f)
	})
	return found.or(pass(count(compared, "ACS control register"), kept))
}

// noBaseline is the answer if there is no baseline. If the plugin runs, the answer is unknown, not a pass.
func noBaseline(n *facts.Node, kept facts.Fact) Answer {
	if kept.Status != facts.Absent {
		return unknown("the ACS state after the boot", kept)
	}
	if !n.Exists(journal.DefaultDir).OK() {
		return notApplicable("the plugin, which records the ACS state, does not run here", kept)
	}
	// The plugin records the state at its start, so it has not started since the boot.
	return unknown("the ACS state after this boot", kept)
}

func driftText(a pci.Address, was, is uint16) string {
	var words []string
	for _, c := range []struct {
		bits uint16
		how  string
	}{{was &^ is, "was disabled"}, {is &^ was, "was enabled"}} {
		if c.bits != 0 {
			words = append(words, cmp.Or(isolation.ACSNames(c.bits), "a reserved bit")+" "+c.how)
		}
	}
	return fmt.Sprintf("the ACS control of %s changed from 0x%04x to 0x%04x: %s", a, was, is, strings.Join(words, ", "))
}

// belowPort returns the assignable functions below a port.
func belowPort(n *facts.Node, port pci.Address) []pci.Address {
	return addresses(slices.DeleteFunc(assignable(n), func(f *device.Function) bool { return !slices.Contains(f.Upstream, port) }))
}

// translatedRequests fails for each function that can send translated requests past the IOMMU. The failure is more severe if the
// requests reach another tenant's function.
func translatedRequests(n *facts.Node) Answer {
	held := holdings(n)
	crossing := map[isolation.Domain]isolation.SharedDomain{}
	for _, m := range isolation.SharedDomains(held, listBypasses(n, held, isolation.TranslatedBypasses)) {
		crossing[m.Domain] = m
	}
	functions := assignable(n)
	found := over(functions, func(f *device.Function) Answer {
		return over(isolation.TranslatedBypasses(n.Snapshot, f), func(l isolation.Bypass) Answer {
			p, _ := n.Snapshot.Function(l.At)
			severity := rule.Medium
			m, crosses := crossing[l.Domain]
			// A request past the IOMMU to a device of the same tenant harms that tenant alone.
			if crosses {
				severity = rule.Critical
			}
			return fail(fmt.Sprintf("%s has ATS on and port %s DirectTrans: its translated requests reach devices at %s past the IOMMU", f.Address, l.At, l.Domain),
				append(switched(f, "ATS"), acsRegisters(p))...).
				fix(isolation.DirectTranslatedFix(n.Snapshot, p)).
				reaching(m.Devices...).weighs(severity).on(f)
		})
	})
	return ofAssignable(n, append(found, unreadable(functions)...), func(f *device.Function) []facts.Fact {
		return append(switched(f, "ATS"), way(n)(f)[1:]...)
	})
}

// unreadable names the functions whose extended capabilities could not be read, those that do not answer by themselves.
func unreadable(functions []*device.Function) Answer {
	hidden := slices.DeleteFunc(slices.Clone(functions), func(f *device.Function) bool { return !f.Capabilities.Truncated })
	var all Answer
	// One finding for each cause: a privilege helps against the first, and none against the second.
	for _, dead := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(hidden), func(f *device.Function) bool { return f.ConfigDead != dead })
		if len(some) > 0 {
			all = append(all, unread("the extended capabilities of "+count(len(some), "function"), some[0]).reaching(addresses(some)...)...)
		}
	}
	return all
}

// listBypasses returns the bypasses of the IOMMU that start at held functions.
func listBypasses(n *facts.Node, held []isolation.Assigned, of func(*device.Snapshot, *device.Function) []isolation.Bypass) []isolation.Bypass {
	var leaks []isolation.Bypass
	for _, h := range held {
		leaks = append(leaks, of(n.Snapshot, h.Function)...)
	}
	return leaks
}

// holdings returns the functions that tenants hold.
func holdings(n *facts.Node) []isolation.Assigned {
	var held []isolation.Assigned
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if tenants := n.Owners(f.Address); len(tenants) > 0 {
			held = append(held, isolation.Assigned{Function: f, Tenants: tenants})
		}
	}
	return held
}
