package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// acsChecks returns the checks of group ACS: requests from one function to
// another pass the IOMMU.
func acsChecks() []Check {
	return slices.Concat(pathChecks(), portChecks(), acsKernelChecks(), sharedDomainChecks(), nodeACSChecks(), driftChecks())
}

// pathChecks returns the checks of the ports above functions.
func pathChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-001", Title: "No port lets requests of one IOMMU group reach another below the IOMMU", Severity: isolation.High, Cheap: true,
			Why:     "a port without ACS routes requests from one device to another below the IOMMU, which never sees them",
			Fix:     isolation.Fix(isolation.PeerToPeer),
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSC'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_enabled)", "Linux: drivers/iommu/iommu.c (REQ_ACS_FLAGS)", "PCI Express Base 6.12"},
		}, Judge: portsRedirect},
		{Rule: finding.Rule{
			ID: "ACS-002", Title: "Functions of one device that are given away apart can't reach each other", Severity: isolation.High, Cheap: true,
			Why:     "a device with several functions may route requests between them within itself",
			Fix:     isolation.Fix(isolation.PeerToPeer) + "; or give all functions of the device to one tenant",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSC'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_acs_enabled)"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			all := assignable(n)
			said := orPass(because(n, isolation.PeerToPeer, func(r *isolation.Reason) bool { return r.Culprit == nil }), len(all))
			return showing(said, all, func(f *device.Function) []facts.Fact { return []facts.Fact{groupOf(f), acsRegisters(f)} })
		}},
		{Rule: finding.Rule{
			ID: "ACS-008", Title: "What keeps functions apart shows in registers", Severity: isolation.Medium, Cheap: true,
			Why:     "where a port shows no ACS and the kernel isolates all the same, it is the vendor's word in the kernel's table of quirks, or a patched kernel's invention",
			Fix:     isolation.Fix(isolation.ACSUnproven),
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ACSC'; ls /sys/kernel/iommu_groups/*/devices",
			Sources: []string{"Linux: drivers/pci/quirks.c (pci_dev_acs_enabled)"},
		}, Judge: shownInRegisters},
	}
}

// shownInRegisters leaves quirks to a person, who knows what the vendor said. With
// the override in use no quirk is to be believed.
func shownInRegisters(n *facts.Node) []finding.Finding {
	found := because(n, isolation.ACSUnproven, nil)
	if len(n.RunningArguments("pcie_acs_override")) == 0 {
		for i := range found {
			found[i].State = finding.Manual
		}
	}
	all := assignable(n)
	return showing(orPass(found, len(all)), all, way(n))
}

// portsRedirect asks the verdict on each function, which goes by the kernel's
// groups and holds the registers against them. A port whose registers don't show
// what the kernel's groups claim is for a person to judge: that is no pass.
func portsRedirect(n *facts.Node) []finding.Finding {
	found := because(n, isolation.PeerToPeer, func(r *isolation.Reason) bool { return r.Culprit != nil })
	unproven := because(n, isolation.ACSUnproven, func(r *isolation.Reason) bool { return isPort(n, r.Culprit) })
	for i := range unproven {
		unproven[i].State = finding.Manual
	}
	found = append(found, unproven...)
	hidden := because(n, isolation.ACSUnreadable, nil)
	for i := range hidden {
		hidden[i].State = finding.Unknown
	}
	all := assignable(n)
	said := showing(orPass(append(found, unreadablePorts(n, hidden)...), len(all)), all, way(n))
	if inside := portsInside(n); len(inside) > 0 && said[0].State == finding.Pass {
		said[0].Text += fmt.Sprintf("; %s without redirection (%s) in the same IOMMU group as all functions below",
			count(len(inside), "port"), listOf(inside))
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

// portsInside names the ports whose registers don't redirect requests and which are
// in the group of what is below: such a group is given out as a whole, so that what
// the port lets pass stays with one tenant.
func portsInside(n *facts.Node) []string {
	var names []string
	for _, p := range ports(n) {
		state := isolation.ACSOf(n.Snapshot, p.Function)
		if state == isolation.ACSAbsent || state == isolation.ACSOff {
			names = append(names, p.Address.String())
		}
	}
	return names
}

// unreadablePorts drops those whose registers are readable but not of the
// standard's form, as those of Intel's PCH: there the group is the answer.
func unreadablePorts(n *facts.Node, found []finding.Finding) []finding.Finding {
	unreadable := map[string]bool{}
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; f.Capabilities.Truncated {
			unreadable["port "+f.Address.String()] = true
		}
	}
	return slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Device == nil && !unreadable[f.Object] })
}
