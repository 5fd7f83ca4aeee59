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

// mergedGroupCheck is about groups that join devices, whoever has them.
func mergedGroupCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "IOM-026", Title: "Devices that tenants can get are in IOMMU groups of their own", Severity: isolation.Medium, Cheap: true,
		Why:     "a group is given out as a whole: one claim gets all devices of it, or none of them can be given to anybody",
		Fix:     isolation.Fix(isolation.PeerToPeer),
		Verify:  "ls -d /sys/kernel/iommu_groups/*/devices/*",
		Sources: []string{"Linux: drivers/iommu/iommu.c (pci_device_group)", "Linux: Documentation/driver-api/vfio.rst"},
	}, Judge: noMergedGroup}
}

// noMergedGroup looks at the groups of functions that tenants can get, each once.
func noMergedGroup(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var looked []*device.Group
	for i := range n.Snapshot.Groups {
		g := &n.Snapshot.Groups[i]
		if g.NoIOMMU || !slices.ContainsFunc(g.Members, n.IsAvailable) {
			continue
		}
		looked = append(looked, g)
		if devices := joinedIn(n, g); len(devices) > 1 {
			found = append(found, merged(n, g, devices))
		}
	}
	if len(found) > 0 {
		return found
	}
	if len(looked) == 0 {
		return notApplicable("tenants can get no function that is in an IOMMU group")
	}
	return showing(pass(count(len(looked), "group")), looked, func(g *device.Group) []facts.Fact { return membersOf(n, g) })
}

// joinedIn names the devices of a group, each by its first function. A VF is one by
// itself: it is there to be given out alone.
func joinedIn(n *facts.Node, g *device.Group) []string {
	var names []string
	slots := map[pci.Address]bool{}
	for _, f := range n.Snapshot.Members(g) {
		slot := f.Address
		if f.VF == nil {
			slot.Function = 0
		}
		if f.IsBridge() || slots[slot] {
			continue
		}
		slots[slot] = true
		names = append(names, f.Address.String())
	}
	return names
}

// merged says which devices a group joins, by which ports, and what would part them.
func merged(n *facts.Node, g *device.Group, devices []string) finding.Finding {
	ports := joining(n, g)
	text := fmt.Sprintf("IOMMU group %d joins %s: %s", g.Number, count(len(devices), "device"), listOf(devices))
	seen := membersOf(n, g)
	f := finding.Finding{State: finding.Fail, Object: fmt.Sprintf("IOMMU group %d", g.Number), Devices: endpointsOf(n, g)}
	if len(ports) > 0 {
		var names []string
		for _, p := range ports {
			names, seen = append(names, p.Address.String()), append(seen, acsRegisters(p))
		}
		text += fmt.Sprintf("; %s above them does not redirect requests", listOf(names))
		f.Remediation = partBy(n, ports)
	}
	f.Text, f.Evidence = text, evidence(seen)
	return f
}

// joining returns the ports above a group's functions that don't redirect requests.
func joining(n *facts.Node, g *device.Group) []*device.Function {
	var found []*device.Function
	known := map[pci.Address]bool{}
	for _, f := range n.Snapshot.Members(g) {
		if f.IsBridge() {
			continue
		}
		for _, p := range upstream(n, f) {
			state := isolation.ACSOf(n.Snapshot, p)
			if !known[p.Address] && (state == isolation.ACSOff || state == isolation.ACSAbsent) {
				known[p.Address] = true
				found = append(found, p)
			}
		}
	}
	return found
}

// partBy says what would part the group. Registers count only while the kernel makes
// groups, which it does at boot.
func partBy(n *facts.Node, ports []*device.Function) string {
	var fixes []string
	for _, p := range ports {
		if isolation.ACSOf(n.Snapshot, p) == isolation.ACSOff {
			fixes = append(fixes, fmt.Sprintf("port %s: %s", p.Address, isolation.ACSAtBoot(p)))
		}
	}
	if len(fixes) == 0 {
		return "move the devices to slots whose ports have ACS; a switch without it can't part what is below"
	}
	return "switch ACS of the ports on: " + strings.Join(fixes, "; ") + "; then reboot: groups are made at boot"
}
