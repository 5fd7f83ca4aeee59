package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// sharedDomainChecks returns the checks of where functions of several tenants meet.
func sharedDomainChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-003", Title: "Translated requests can't go from one device to another", Severity: isolation.Critical, Cheap: true,
			Why:     "a device with ATS marks requests as translated, and a port with Direct Translated P2P lets those reach other devices without the IOMMU",
			Fix:     "switch DirectTrans off in the port's ACS control, or ATS in the device (`pci=noats`)",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl|ATSCtl'",
			Sources: []string{"Linux: include/uapi/linux/pci_regs.h (PCI_ACS_DT, PCI_ATS_CTRL)", "PCI Express Base 6.12, 10"},
		}, Judge: translatedRequests},
		{Rule: finding.Rule{
			ID: "ACS-009", Title: "Between functions of different tenants every request passes the IOMMU, both ways", Severity: isolation.Critical, Cheap: true,
			Why:     "where the ways of two tenants' functions meet below the IOMMU, one reads and writes the other's device memory",
			Fix:     "delete one tenant's pod, then enable ACS for the ports named, or keep devices below that point with one tenant",
			Verify:  "lspci -tv; lspci -vvv | grep -E '^[0-9a-f]|ACSC'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_path_enabled)", "PCI Express Base 6.12"},
		}, Judge: tenantsMeet},
		// Nothing but placement changes it, so nobody fails.
		{Rule: finding.Rule{
			ID: "ACS-019", Title: "No two tenants share a switch", Severity: isolation.Info, Cheap: true, Static: true,
			Why:    "below one switch tenants slow each other down and can watch each other's load; ACS does not remove that",
			Fix:    "where that matters, give the devices below a switch to one tenant (the attribute pcieSwitch in a claim's constraint)",
			Verify: "lspci -tv",
			Sources: []string{
				"Richter et al., Performance Isolation Exposure in Virtualized Platforms with PCI Passthrough I/O Sharing (ARCS 2014)",
				"Side, Yao, Zhang, LockedDown: Exploiting Contention on Host-GPU PCIe Bus for Fun and Profit",
			},
		}, Judge: sharedSwitches},
	}
}

// holdings returns the functions that tenants have.
func holdings(n *facts.Node) []isolation.Assigned {
	var held []isolation.Assigned
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if tenants := n.TenantsOf(f.Address); len(tenants) > 0 {
			held = append(held, isolation.Assigned{Function: f, Tenants: tenants})
		}
	}
	return held
}

func bypassesOf(n *facts.Node, held []isolation.Assigned, of func(*device.Snapshot, *device.Function) []isolation.Bypass) []isolation.Bypass {
	var leaks []isolation.Bypass
	for _, h := range held {
		leaks = append(leaks, of(n.Snapshot, h.Function)...)
	}
	return leaks
}

func tenantsMeet(n *facts.Node) []finding.Finding {
	held := holdings(n)
	tenants := map[string]bool{}
	for _, h := range held {
		for _, t := range h.Tenants {
			tenants[t] = true
		}
	}
	if len(tenants) < 2 {
		return notApplicable("no two tenants have functions")
	}
	var found []finding.Finding
	for _, m := range isolation.SharedDomains(held, bypassesOf(n, held, isolation.Bypasses)) {
		found = append(found, sharedDomain(n, &m))
	}
	if len(found) == 0 {
		said := pass(fmt.Sprintf("%s of %s", count(len(held), "function"), count(len(tenants), "tenant")))
		return showing(said, held, func(h isolation.Assigned) []facts.Fact { return way(n)(h.Function) })
	}
	return found
}

// meeting tells of one place: a failure where a port is seen to let requests
// through, unknown where the registers of all in question are not readable.
func sharedDomain(n *facts.Node, m *isolation.SharedDomain) finding.Finding {
	open := slices.DeleteFunc(slices.Clone(m.Bypasses), func(l isolation.Bypass) bool { return l.State == isolation.ACSUnknown })
	state, leaks := finding.Fail, open
	if len(open) == 0 {
		state, leaks = finding.Unknown, m.Bypasses
	}
	text := fmt.Sprintf("functions of %s meet at %s, ", strings.Join(m.Tenants, ", "), m.Domain)
	if state == finding.Unknown {
		text += "and whether their requests pass the IOMMU can't be told: registers not readable of " + portNames(leaks)
	} else {
		text += fmt.Sprintf("and %s: requests pass without the IOMMU %s", portStates(leaks), ways(n, m, leaks))
	}
	found := say(state, text, portRegisters(n, leaks))[0]
	found.Object, found.Devices = m.Domain.String(), m.Devices
	if len(leaks) == 1 || len(m.Devices) == 2 {
		found.Device = new(leaks[0].From)
	}
	return found
}

// ways says between whom requests pass.
func ways(n *facts.Node, m *isolation.SharedDomain, leaks []isolation.Bypass) string {
	var senders []pci.Address
	for _, l := range leaks {
		senders = append(senders, l.From)
	}
	from := n.TenantsOf(senders...)
	if len(from) > 1 {
		return "both ways"
	}
	others := slices.DeleteFunc(slices.Clone(m.Tenants), func(t string) bool { return slices.Contains(from, t) })
	if len(others) == 0 {
		return "between them"
	}
	return fmt.Sprintf("from %s to %s, not the other way", strings.Join(from, ", "), strings.Join(others, ", "))
}

// maxNamed is how many ports a sentence names.
const maxNamed = 4

// distinctPorts returns the ports of leaks, each once.
func distinctPorts(leaks []isolation.Bypass) []isolation.Bypass {
	seen := map[pci.Address]bool{}
	return slices.DeleteFunc(slices.Clone(leaks), func(l isolation.Bypass) bool {
		was := seen[l.At]
		seen[l.At] = true
		return was
	})
}

func portNames(leaks []isolation.Bypass) string {
	return inWords(leaks, func(l isolation.Bypass) string { return l.At.String() })
}

// portStates says what is wrong: "0000:22:00.0 has ACS off".
func portStates(leaks []isolation.Bypass) string {
	return inWords(leaks, func(l isolation.Bypass) string {
		if l.State == isolation.ACSAbsent {
			return l.At.String() + " has no ACS"
		}
		return l.At.String() + " does not redirect"
	})
}

func inWords(leaks []isolation.Bypass, word func(isolation.Bypass) string) string {
	var words []string
	all := distinctPorts(leaks)
	for _, l := range all[:min(len(all), maxNamed)] {
		words = append(words, word(l))
	}
	if more := len(all) - maxNamed; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

// portRegisters returns the ACS registers of the ports as evidence.
func portRegisters(n *facts.Node, leaks []isolation.Bypass) []facts.Fact {
	var seen []facts.Fact
	for _, l := range distinctPorts(leaks) {
		if p, ok := n.Snapshot.Function(l.At); ok {
			seen = append(seen, acsRegisters(p))
		}
	}
	return seen
}

// translatedRequests fails for each function that can send translated requests
// past the IOMMU. What gets at another tenant's weighs more than what as yet
// meets nobody's.
func translatedRequests(n *facts.Node) []finding.Finding {
	held := holdings(n)
	crossing := map[isolation.Domain]isolation.SharedDomain{}
	for _, m := range isolation.SharedDomains(held, bypassesOf(n, held, isolation.TranslatedBypasses)) {
		crossing[m.Domain] = m
	}
	functions := assignable(n)
	var found []finding.Finding
	for _, f := range functions {
		for _, l := range isolation.TranslatedBypasses(n.Snapshot, f) {
			p, _ := n.Snapshot.Function(l.At)
			m, crosses := crossing[l.Domain]
			failed := fail(fmt.Sprintf("%s has ATS on and port %s DirectTrans: what it marks as translated reaches others at %s without the IOMMU", f.Address, l.At, l.Domain),
				append(switched(f, "ATS"), acsRegisters(p))...)
			failed[0].Remediation = fmt.Sprintf("`%s`, or boot with `pci=noats`", isolation.SetACS(l.At, p.Capabilities.ACS.Control&^pci.ACSDirectTranslated))
			failed[0].Devices, failed[0].Severity = m.Devices, isolation.Medium
			if crosses {
				failed[0].Severity = isolation.Critical
			}
			found = append(found, about(f, failed)...)
		}
	}
	return showing(orPass(append(found, unreadable(functions)...), len(functions)), functions, func(f *device.Function) []facts.Fact {
		return append(switched(f, "ATS"), way(n)(f)[1:]...)
	})
}

// unreadable says of which functions the extended capabilities could not be read.
func unreadable(functions []*device.Function) []finding.Finding {
	hidden := slices.DeleteFunc(slices.Clone(functions), func(f *device.Function) bool { return !f.Capabilities.Truncated })
	if len(hidden) == 0 {
		return nil
	}
	found := unknown("the extended capabilities of "+count(len(hidden), "function"), notReadable(hidden[0]))
	for _, f := range hidden {
		found[0].Devices = append(found[0].Devices, f.Address)
	}
	return found
}

// sharedSwitches tells of each switch below which several tenants have functions.
func sharedSwitches(n *facts.Node) []finding.Finding {
	below := map[pci.Address][]pci.Address{}
	var switches []pci.Address
	held := holdings(n)
	for _, h := range held {
		for _, bridge := range h.Function.Upstream {
			if p, ok := n.Snapshot.Function(bridge); ok && p.Capabilities.Express != nil && p.Capabilities.Express.Type == pci.UpstreamPort {
				if below[bridge] == nil {
					switches = append(switches, bridge)
				}
				below[bridge] = append(below[bridge], h.Function.Address)
			}
		}
	}
	var found []finding.Finding
	for _, s := range switches {
		tenants := n.TenantsOf(below[s]...)
		if len(tenants) < 2 {
			continue
		}
		shared := say(finding.Manual, fmt.Sprintf("%s have functions below switch %s; whether they may share its bandwidth is to be decided", strings.Join(tenants, ", "), s), nil)
		shared[0].Devices = below[s]
		found = append(found, objectOf("switch "+s.String(), shared)...)
	}
	if len(found) == 0 {
		said := pass("each switch has one tenant at most", n.Journal())
		return showing(said, held, func(h isolation.Assigned) []facts.Fact { return above(n, h.Function) })
	}
	return found
}
