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

// portChecks returns the checks of how ports above functions are set up beyond
// what the kernel's groups need.
func portChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-004", Title: "Ports above functions without ATS refuse translated requests", Severity: isolation.Medium, Cheap: true,
			Why:     "a function that has ATS off has no business with translated requests: one that sends them forges them",
			Fix:     "set translation blocking by `pci=config_acs=` on the kernel's command line; `pci=noats` has the kernel set it for all ports",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSC|ATSCtl'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_std_enable_acs)", "PCI Express Base 6.12.1.1"},
		}, Judge: translationBlocked},
		{Rule: finding.Rule{
			ID: "ACS-005", Title: "No port chooses by itself which peers may be reached", Severity: isolation.Medium, Cheap: true,
			Why:     "with egress control a port's vector opens direct ways that its other ACS bits close",
			Fix:     "clear EgressCtrl in the port's ACS control",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
			Sources: []string{"PCI Express Base 6.12.3", "Linux: include/uapi/linux/pci_regs.h (PCI_ACS_EC)"},
		}, Judge: noEgressControl},
		{Rule: finding.Rule{
			ID: "ACS-010", Title: "No function that is given away is on a conventional PCI bus", Severity: isolation.High, Cheap: true,
			Why:     "a conventional bus is shared: each function on it sees the others' requests and can send in their name",
			Fix:     "move the device to a PCI Express slot",
			Verify:  "lspci -tv; lspci -vvv | grep -E '^[0-9a-f]|PCI-Express to PCI'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_enabled)", "Linux: drivers/pci/search.c (pci_for_each_dma_alias)"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			said := each(n, func(f *device.Function) []finding.Finding { return onConventionalBus(n, f) })
			return showing(said, assignable(n), func(f *device.Function) []facts.Fact { return above(n, f) })
		}},
		{Rule: finding.Rule{
			ID: "ACS-014", Title: "Ports above functions that are given away contain errors", Severity: isolation.Low, Cheap: true,
			Why:     "where a port does not cut off a device on a fatal error, a hostile guest's errors reach the node, up to its crash",
			Fix:     "enable Downstream Port Containment in the firmware setup, or boot with `pcie_ports=dpc-native`",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|DpcCtl'",
			Sources: []string{"Linux: drivers/pci/pcie/dpc.c", "Linux: Documentation/admin-guide/kernel-parameters.txt (pcie_ports=)"},
		}, Judge: errorsContained},
	}
}

// translationBlocked looks at ports that could block translated requests, and have
// nothing with ATS below.
func translationBlocked(n *facts.Node) []finding.Finding {
	translating := map[pci.Address]bool{}
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; isEnabled(f.Capabilities.ATS) {
			for _, a := range f.Upstream {
				translating[a] = true
			}
		}
	}
	return portsThat(n, "let translated requests pass though nothing below translates", acsRegisters, func(p *port) bool {
		acs := p.Capabilities.ACS
		return acs != nil && acs.Capability&^acs.Control&pci.ACSTranslationBlocking != 0 && !translating[p.Address]
	})
}

func noEgressControl(n *facts.Node) []finding.Finding {
	return portsThat(n, "have egress control on", acsRegisters, func(p *port) bool {
		return p.Capabilities.ACS != nil && p.Capabilities.ACS.Control&pci.ACSEgressControl != 0
	})
}

// errorsContained leaves out ports that have no containment to be switched on.
func errorsContained(n *facts.Node) []finding.Finding {
	dpc := func(p *device.Function) facts.Fact { return switched(p, "DPC")[0] }
	return portsThat(n, "have containment (DPC) and leave it off", dpc, func(p *port) bool {
		return p.Capabilities.DPC != nil && !p.Capabilities.DPC.Enabled
	})
}

// portsThat makes one finding of all ports that are so, since what sets up ports
// sets up all of them alike.
func portsThat(n *facts.Node, verb string, evidence func(*device.Function) facts.Fact, so func(*port) bool) []finding.Finding {
	var names []string
	var seen []facts.Fact
	var below []pci.Address
	all := ports(n)
	hidden := 0
	for _, p := range all {
		if p.Capabilities.Truncated {
			hidden++
		}
		if so(p) {
			names, seen, below = append(names, p.Address.String()), append(seen, evidence(p.Function)), append(below, p.below...)
		}
	}
	switch {
	case len(all) == 0:
		return notApplicable("no function that is given away is below a port")
	case len(names) > 0:
		slices.SortFunc(below, pci.Address.Compare)
		failed := fail(fmt.Sprintf("%s %s", listOf(names), verb), seen...)
		failed[0].Devices = slices.Compact(below)
		return failed
	case hidden > 0:
		return unknown("how "+count(hidden, "port")+" are set up", notReadable(all[0].Function))
	}
	return showing(pass(count(len(all), "port")), all, func(p *port) []facts.Fact { return []facts.Fact{evidence(p.Function)} })
}

// listOf names some, and how many more there are.
func listOf(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// onConventionalBus looks for a bridge to conventional PCI above a function.
func onConventionalBus(n *facts.Node, f *device.Function) []finding.Finding {
	for _, a := range f.Upstream {
		p, ok := n.Snapshot.Function(a)
		if !ok {
			continue
		}
		express := p.Capabilities.Express
		switch {
		case express == nil && p.Capabilities.Truncated:
			return unknown("what kind of bridge "+a.String()+" is", notReadable(p))
		case express == nil, express.Type == pci.PCIeToPCI, express.Type == pci.PCIToPCIe:
			return fail(fmt.Sprintf("%s is below %s, a bridge to conventional PCI", f.Address, a), config(a, "PCI-Express to PCI/PCI-X bridge"))
		}
	}
	return nil
}
