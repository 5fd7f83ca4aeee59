package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// groupChecks returns the checks of who is in a group with whom.
func groupChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-016", Title: "The firmware shares no memory with functions that are given away", Severity: isolation.High, Cheap: true,
			Why:     "a region that the firmware wants mapped directly is host memory that the function keeps reaching",
			Fix:     isolation.Fix(isolation.DirectRegion),
			Verify:  "grep -H direct /sys/kernel/iommu_groups/*/reserved_regions",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-iommu_groups", "Linux: drivers/iommu/iommu.c (require_direct)"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			all := assignable(n)
			return showing(orPass(because(n, isolation.DirectRegion, nil), len(all)), all, groupFile(n, "reserved_regions"))
		}},
		{Rule: finding.Rule{
			ID: "IOM-017", Title: "An IOMMU group has one tenant", Severity: isolation.Critical, Cheap: true,
			Why:     "the group is the smallest thing that the IOMMU keeps apart: functions in one reach each other",
			Fix:     "delete one tenant's pod, and give the group's functions out together; a slot whose ports have ACS makes groups of their own",
			Verify:  "ls /sys/kernel/iommu_groups/*/devices; ls /var/lib/kata-vfio/journal",
			Sources: []string{"Linux: Documentation/driver-api/vfio.rst"},
		}, Judge: oneTenantPerGroup},
		{Rule: finding.Rule{
			ID: "IOM-018", Title: "No driver of the node uses a function beside a tenant's in its IOMMU group", Severity: isolation.High, Cheap: true,
			Why:     "a driver that does DMA shares the group's address space with a hostile neighbour",
			Fix:     "unbind the function from its driver, or bind it to vfio-pci or pci-stub",
			Verify:  "for d in /sys/kernel/iommu_groups/*/devices/*; do echo $d $(basename $(readlink $d/driver)); done",
			Sources: []string{"Linux: drivers/iommu/iommu.c (iommu_group_claim_dma_owner)"},
		}, Judge: noHostDriverBeside},
	}
}

// oneTenantPerGroup looks at the groups of what tenants have, each once.
func oneTenantPerGroup(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var held []*device.Group
	for i := range n.Snapshot.Groups {
		g := &n.Snapshot.Groups[i]
		holders, tenants := holdersIn(n, g.Members)
		if len(holders) > 0 {
			held = append(held, g)
		}
		if len(tenants) < 2 {
			continue
		}
		failed := fail(fmt.Sprintf("IOMMU group %d is shared by %s: %s", g.Number, strings.Join(tenants, " and "), strings.Join(holders, ", ")), membersOf(n, g)...)
		failed[0].Devices = endpointsOf(n, g)
		found = append(found, objectOf(fmt.Sprintf("IOMMU group %d", g.Number), failed)...)
	}
	switch {
	case len(held) == 0:
		return notApplicable("no tenant has a function")
	case len(found) == 0:
		said := pass(fmt.Sprintf("%s with one tenant each", count(len(held), "group")), n.Journal())
		return showing(said, held, func(g *device.Group) []facts.Fact { return membersOf(n, g) })
	}
	return found
}

// holdersIn says in words who has which of the functions.
func holdersIn(n *facts.Node, members []pci.Address) (holders, tenants []string) {
	for _, a := range members {
		for _, t := range n.TenanciesOf(a) {
			holders = append(holders, fmt.Sprintf("%s has %s (claim %s)", t.Tenant(), a, t.Claim()))
		}
	}
	return holders, n.TenantsOf(members...)
}

// membersOf is the kernel's list of a group's members.
func membersOf(n *facts.Node, g *device.Group) []facts.Fact {
	_, list := n.List(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices", g.Number))
	return []facts.Fact{list}
}

func endpointsOf(n *facts.Node, g *device.Group) []pci.Address {
	var found []pci.Address
	for _, f := range n.Snapshot.Members(g) {
		if !f.IsBridge() {
			found = append(found, f.Address)
		}
	}
	return found
}

// noHostDriverBeside looks at the groups of what VFIO has for tenants. While one
// of a claim's functions is with its kernel's driver on purpose, as that of a
// physical endpoint, nobody in the group is with VFIO.
func noHostDriverBeside(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var looked []*device.Group
	for i := range n.Snapshot.Groups {
		g := &n.Snapshot.Groups[i]
		if !anyWithVFIO(n, g) {
			continue
		}
		looked = append(looked, g)
		for _, f := range n.Snapshot.Members(g) {
			if isolation.LeavesDMA(f.Driver) {
				continue
			}
			failed := fail(fmt.Sprintf("%s is on %s in IOMMU group %d, which a tenant has", f.Address, f.Driver, g.Number), attribute(f.Address, "driver", f.Driver))
			failed[0].Devices = endpointsOf(n, g)
			found = append(found, about(f, failed)...)
		}
	}
	switch {
	case len(looked) == 0:
		return notApplicable("VFIO has no function for a tenant")
	case len(found) == 0:
		return showing(pass(count(len(looked), "group")), looked, func(g *device.Group) []facts.Fact { return driversIn(n, g) })
	}
	return found
}

// driversIn says which drivers have a group's members.
func driversIn(n *facts.Node, g *device.Group) []facts.Fact {
	var seen []facts.Fact
	for _, f := range n.Snapshot.Members(g) {
		seen = append(seen, driverFact(f))
	}
	return seen
}

func anyWithVFIO(n *facts.Node, g *device.Group) bool {
	for _, f := range n.Snapshot.Members(g) {
		if device.IsVFIO(f.Driver) && len(n.TenanciesOf(f.Address)) > 0 {
			return true
		}
	}
	return false
}
