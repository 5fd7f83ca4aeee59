package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// iommuChecks returns the checks of group IOM: DMA and interrupts of functions
// are confined.
func iommuChecks() []Check {
	return slices.Concat(presenceChecks(), traceChecks(), interruptChecks(), translationChecks(), groupChecks(), []Check{mergedGroupCheck()}, trustedDeviceChecks(), confidentialIommuChecks())
}

// presenceChecks returns the checks of whether there is an IOMMU at all.
func presenceChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-001", Title: "The node has an IOMMU and its groups", Severity: isolation.Critical, Cheap: true,
			Why:     "without an IOMMU a function reaches all memory of the node by DMA",
			Fix:     isolation.Fix(isolation.NoGroup),
			Verify:  "ls /sys/class/iommu /sys/kernel/iommu_groups",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-class-iommu"},
		}, Judge: hasIOMMU},
		{Rule: finding.Rule{
			ID: "IOM-002", Title: "Functions that are given away are in a real IOMMU group", Severity: isolation.Critical, Cheap: true,
			Why:     "a no-IOMMU group looks like a group and confines nothing",
			Fix:     isolation.Fix(isolation.NoIOMMU),
			Verify:  "for d in /sys/bus/pci/devices/*; do echo ${d##*/} $(readlink -f $d/iommu_group) $(cat $d/iommu_group/name 2>/dev/null); done",
			Sources: []string{"Linux: drivers/vfio/group.c vfio_noiommu_group_alloc"},
		}, Judge: realGroups},
		{Rule: finding.Rule{
			ID: "IOM-003", Title: "VFIO's no-IOMMU mode is off", Severity: isolation.Critical, Cheap: true,
			Why:     "in this mode a process or VM has the device without DMA translation: in the kernel's words no device isolation and no host kernel protection",
			Fix:     isolation.Fix(isolation.NoIOMMU),
			Verify:  "cat /sys/module/vfio/parameters/enable_unsafe_noiommu_mode; ls /dev/vfio",
			Sources: []string{"Linux: drivers/vfio/vfio_main.c"},
		}, Judge: noIOMMUMode},
	}
}

func hasIOMMU(n *facts.Node) []finding.Finding {
	units, class := n.List("sys/class/iommu")
	groups, kernel := n.List("sys/kernel/iommu_groups")
	switch {
	case !class.Known() || !kernel.Known():
		return unknown("whether there is an IOMMU", class, kernel)
	case len(units) == 0:
		return fail("the kernel has no IOMMU", class, kernel)
	case len(groups) == 0:
		return fail("there is an IOMMU, but no function is in a group", class, kernel)
	}
	return pass(fmt.Sprintf("%s, %s", count(len(units), "IOMMU unit"), count(len(groups), "group")), class)
}

// realGroups looks at what can be given away: VFIO has it, or the plugin may.
func realGroups(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	all := assignable(n)
	for _, f := range all {
		group, ok := n.Snapshot.GroupOf(f)
		switch {
		case !ok:
			found = append(found, about(f, ungrouped(n, f, fail(fmt.Sprintf("%s is in no IOMMU group", f.Address), groupOf(f))))...)
		case group.NoIOMMU:
			name := n.Read(fmt.Sprintf("sys/kernel/iommu_groups/%d/name", group.Number))
			found = append(found, about(f, fail(fmt.Sprintf("group %d of %s is a no-IOMMU group", group.Number, f.Address), name))...)
		}
	}
	return showing(orPass(found, len(all)), all, one(groupOf))
}

func noIOMMUMode(n *facts.Node) []finding.Finding {
	mode := n.Parameter("vfio", "enable_unsafe_noiommu_mode")
	nodes, dir := n.List("dev/vfio")
	made := slices.ContainsFunc(nodes, func(name string) bool { return len(name) > 8 && name[:8] == "noiommu-" })
	switch {
	case made:
		return pending(fail("there are device nodes of no-IOMMU groups", mode.Running, dir), &mode, "N")
	case mode.Running.On():
		return pending(fail("VFIO's no-IOMMU mode is on: a root process may use any function without an IOMMU", mode.Running), &mode, "N")
	case !mode.Running.Known():
		return unknown("the mode", mode.Running)
	case mode.Running.Status == facts.Absent:
		return setLater(notApplicable("the kernel has no such mode, or VFIO is not loaded", mode.Running), &mode, "N")
	}
	return setLater(pass("off", mode.Running), &mode, "N")
}

// about says which function the findings are about.
func about(f *device.Function, found []finding.Finding) []finding.Finding {
	for i := range found {
		found[i].Device = new(f.Address)
	}
	return found
}
