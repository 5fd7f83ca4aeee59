package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// iommuChecks returns the checks of group IOM: DMA and interrupts of functions
// are confined.
func iommuChecks() []Check {
	return slices.Concat(presenceChecks(), interruptChecks(), translationChecks(), groupChecks())
}

// presenceChecks are about whether there is an IOMMU at all, and about traces of nodes without one.
func presenceChecks() []Check {
	return []Check{
		{ID: "IOM-001", Judge: hasIOMMU},
		{ID: "IOM-002", Judge: realGroups},
		{ID: "IOM-003", Judge: noIOMMUMode},
		{ID: "IOM-004", Judge: notTainted},
		{ID: "IOM-024", Judge: debugIsRoots},
	}
}

func hasIOMMU(n *facts.Node) Answer {
	units, class := n.List("sys/class/iommu")
	groups, kernel := n.List("sys/kernel/iommu_groups")
	switch {
	case !class.Known() || !kernel.Known():
		return unknown("whether the node has an IOMMU", class, kernel)
	case len(units) == 0:
		return fail("the kernel has no IOMMU", class, kernel).fix(isolation.FixOn(n.Snapshot, rule.NoIOMMUGroup))
	case len(groups) == 0:
		return fail("the node has an IOMMU, but no function is in a group", class, kernel).fix(isolation.FixOn(n.Snapshot, rule.NoIOMMUGroup))
	}
	return pass(fmt.Sprintf("%s, %s", count(len(units), "IOMMU unit"), count(len(groups), "group")), class)
}

// realGroups looks at assignable functions.
func realGroups(n *facts.Node) Answer {
	return each(n, one(groupFact), func(f *device.Function) Answer {
		group, ok := n.Snapshot.GroupWith(f)
		switch {
		case !ok:
			return ungrouped(n, f, fail(fmt.Sprintf("%s is in no IOMMU group", f.Address), groupFact(f)))
		case group.NoIOMMU:
			return fail(fmt.Sprintf("group %d of %s is a no-IOMMU group", group.Number, f.Address), groupFile(n, "name")(f)...).fix(isolation.FixOn(n.Snapshot, rule.NoIOMMUMode))
		}
		return nil
	})
}

func noIOMMUMode(n *facts.Node) Answer {
	mode := n.Parameter("vfio", "enable_unsafe_noiommu_mode")
	nodes, dir := n.List("dev/vfio")
	if slices.ContainsFunc(nodes, func(name string) bool { return strings.HasPrefix(name, "noiommu-") }) {
		return pending(fail("/dev/vfio has nodes of no-IOMMU groups", mode.Running, dir), &mode, "N")
	}
	return judgeSettings(n, kernelSettings()["IOM-003"]...)
}

// interruptChecks are about interrupt remapping.
func interruptChecks() []Check {
	return []Check{
		{ID: "IOM-005", Judge: interruptsRemapped},
		{ID: "IOM-006", Judge: func(n *facts.Node) Answer { return unsafeInterrupts(n, "IOM-006") }},
		{ID: "IOM-007", Judge: func(n *facts.Node) Answer { return unsafeInterrupts(n, "IOM-007") }},
		ofSettings("IOM-008"),
		{ID: "IOM-009", Judge: firmwareOffersRemapping},
		{ID: "IOM-010", Judge: unitsRemap},
	}
}

// interruptsRemapped judges the node once for all functions: remapping applies to the whole node. On machines other than
// Intel's and AMD's, the name of a chip shows only remapping, not its absence, because older kernels use the same names
// for all of Arm's chips.
func interruptsRemapped(n *facts.Node) Answer {
	devices := addresses(assignable(n))
	// For a node without an assignable function, the node's chips alone are judged.
	found := isolation.JudgeInterrupts(n.Snapshot, &device.Function{})
	for i, f := range assignable(n) {
		if of := isolation.JudgeInterrupts(n.Snapshot, f); i == 0 || len(of.Plain) > 0 {
			found = of
		}
	}
	seen := facts.Fact{Path: "/sys/kernel/irq/*/chip_name", Value: strings.Join(n.Snapshot.Host.IRQChips, " "), How: "read"}
	remapped, known := found.Remapped()
	switch {
	case remapped:
		return pass(strings.Join(found.Safe, ", "), seen)
	case known && isX86(n):
		return fail(fmt.Sprintf("interrupts are not remapped (chip %s)", strings.Join(found.Plain, ", ")), seen).reaching(devices...).
			fix(isolation.FixOn(n.Snapshot, rule.NoInterruptRemapping))
	case known:
		return say(finding.Unknown, "interrupt chip names don't show isolation on this architecture; VFIO checks it while allow_unsafe_interrupts is off", []facts.Fact{seen})
	}
	return say(finding.Unknown, "can't tell whether interrupts are remapped: no PCI function uses MSI", []facts.Fact{seen})
}

// isX86 reports whether the names of the interrupt chips show remapping on this node: it has a VT-d or AMD-Vi unit, or
// no IOMMU.
func isX86(n *facts.Node) bool {
	units := n.Snapshot.Host.IOMMUs
	return len(units) == 0 || slices.ContainsFunc(units, func(unit string) bool {
		return strings.HasPrefix(unit, "dmar") || strings.HasPrefix(unit, "ivhd")
	})
}

// unsafeInterrupts judges the parameter of one of its two modules. While interrupts are remapped, the parameter has no effect, so
// the failure is less severe.
func unsafeInterrupts(n *facts.Node, id string) Answer {
	found := judgeSettings(n, kernelSettings()[id]...)
	if found[0].State == finding.Fail && interruptsRemapped(n)[0].State == finding.Pass {
		found[0].Text += "; it has no effect while interrupts are remapped"
		return found.weighs(rule.Medium)
	}
	return found
}

func firmwareOffersRemapping(n *facts.Node) Answer {
	flags, table := n.DMAR()
	switch {
	case table.Status == facts.Absent:
		return notApplicable("the firmware has no DMAR table, so no VT-d", table)
	case !table.OK():
		return unknown("what the firmware offers", table)
	case !flags.InterruptRemapping:
		found := fail("the firmware's DMAR table does not support interrupt remapping", table)
		if n.Snapshot.Host.Machine.IsVM() {
			return found.fix(isolation.FixOn(n.Snapshot, rule.NoInterruptRemapping))
		}
		return found
	// Without x2APIC, the kernel remaps interrupts in xAPIC mode (intel_prepare_irq_remapping in
	// drivers/iommu/intel/irq_remapping.c).
	case flags.X2APICOptOut:
		return pass("offered, but the firmware asks the kernel not to use x2APIC", table)
	}
	return pass("offered", table)
}

// unitsRemap looks at bit 3 of each VT-d unit's extended capabilities.
func unitsRemap(n *facts.Node) Answer {
	units := n.VTdUnits()
	if len(units) == 0 {
		return notApplicable("the node has no VT-d unit")
	}
	return over(units, func(u facts.VTdUnit) Answer {
		switch {
		case !u.Extended.OK():
			return unknown("the capabilities of "+u.Name, u.Extended).object("IOMMU " + u.Name)
		case !u.RemapsInterrupts:
			return fail(u.Name+" can't remap interrupts", u.Extended).object("IOMMU " + u.Name).reaching(u.Functions...)
		}
		return nil
	}).or(pass(count(len(units), "unit"), units[0].Extended))
}

func notTainted(n *facts.Node) Answer {
	// TAINT_USER. VFIO sets it when it makes a no-IOMMU group (drivers/vfio/group.c).
	const user = 1 << 6
	seen := n.Read("proc/sys/kernel/tainted")
	flags, err := strconv.ParseUint(seen.Value, 10, 64)
	switch {
	case !seen.OK() || err != nil:
		return unknown("the kernel's taint flags", seen)
	case flags&user != 0:
		return fail("user space tainted the kernel (flag U), possibly by a no-IOMMU group", seen)
	}
	return pass("flag U is not set", seen)
}

func debugIsRoots(n *facts.Node) Answer {
	const others = 0o077
	mode, seen := n.Permissions("sys/kernel/debug")
	names, list := n.List("sys/kernel/debug")
	switch {
	// sysfs has the directory as a mount point, so an empty one means that debugfs is not mounted.
	case seen.Status == facts.Absent, list.OK() && len(names) == 0:
		return pass("not mounted", seen)
	case !seen.OK():
		return unknown("who can read the debug files", seen)
	case mode&others != 0:
		return fail(fmt.Sprintf("users other than root can read the debug files (%v)", mode), seen)
	}
	return pass("only root", seen)
}
