package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
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

func hasIOMMU(n *facts.Node) Answer {
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
func realGroups(n *facts.Node) Answer {
	var found Answer
	all := assignable(n)
	for _, f := range all {
		group, ok := n.Snapshot.GroupOf(f)
		switch {
		case !ok:
			found = append(found, ungrouped(n, f, fail(fmt.Sprintf("%s is in no IOMMU group", f.Address), groupOf(f))).on(f)...)
		case group.NoIOMMU:
			name := n.Read(fmt.Sprintf("sys/kernel/iommu_groups/%d/name", group.Number))
			found = append(found, fail(fmt.Sprintf("group %d of %s is a no-IOMMU group", group.Number, f.Address), name).on(f)...)
		}
	}
	return showing(orPass(found, len(all)), all, one(groupOf))
}

func noIOMMUMode(n *facts.Node) Answer {
	mode := n.Parameter("vfio", "enable_unsafe_noiommu_mode")
	nodes, dir := n.List("dev/vfio")
	if slices.ContainsFunc(nodes, func(name string) bool { return strings.HasPrefix(name, "noiommu-") }) {
		return pending(fail("there are device nodes of no-IOMMU groups", mode.Running, dir), &mode, "N")
	}
	return parameter{
		module: "vfio", name: "enable_unsafe_noiommu_mode", good: []string{"N"},
		bad: "VFIO's no-IOMMU mode is on: a root process may use any function without an IOMMU", none: "the kernel has no such mode, or VFIO is not loaded",
	}.judge(n)
}

// interruptChecks returns the checks of interrupt remapping.
func interruptChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-005", Title: "Interrupts are remapped", Severity: isolation.Critical, Cheap: true,
			Why:     "without remapping a function forges interrupts of the node and of other VMs by writing to memory",
			Fix:     isolation.Fix(isolation.NoInterruptRemapping),
			Verify:  "grep -H . /sys/kernel/irq/*/chip_name",
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-kernel-irq", "Linux: drivers/iommu/intel/irq_remapping.c", "CVE-2011-1898"},
		}, Judge: interruptsRemapped},
		{Rule: finding.Rule{
			ID: "IOM-006", Title: "VFIO type 1 refuses unsafe interrupts", Severity: isolation.Critical, Cheap: true,
			Why:     "with the parameter on VFIO gives functions away though nothing keeps them from forging interrupts",
			Fix:     isolation.UnsafeInterruptsFix("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"),
			Verify:  "cat /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
			Sources: []string{"Linux: drivers/vfio/vfio_iommu_type1.c"},
		}, Judge: func(n *facts.Node) Answer { return unsafeInterrupts(n, "vfio_iommu_type1") }},
		{Rule: finding.Rule{
			ID: "IOM-007", Title: "iommufd refuses unsafe interrupts", Severity: isolation.Critical, Cheap: true,
			Why:     "iommufd has the switch of VFIO type 1 once more, and it is as good a way around interrupt remapping",
			Fix:     isolation.UnsafeInterruptsFix("/sys/module/iommufd/parameters/allow_unsafe_interrupts"),
			Verify:  "cat /sys/module/iommufd/parameters/allow_unsafe_interrupts",
			Sources: []string{"Linux: drivers/iommu/iommufd/device.c"},
		}, Judge: func(n *facts.Node) Answer { return unsafeInterrupts(n, "iommufd") }},
		{Rule: finding.Rule{
			ID: "IOM-008", Title: "No kernel argument weakens interrupt remapping", Severity: isolation.Critical, Cheap: true,
			Why:     "intremap=off switches remapping off; with intremap=nosid a function may claim to be another and so raise that one's interrupts",
			Fix:     "take intremap= out of the boot loader's configuration and reboot",
			Verify:  "grep -o 'intremap=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (intremap=)", "Linux: drivers/iommu/irq_remapping.c"},
		}, Judge: func(n *facts.Node) Answer {
			return badArgument(n, "intremap", badWords(map[string]string{
				"off": "switches interrupt remapping off", "nosid": "switches the check of who sends an interrupt off",
			}))
		}},
		{Rule: finding.Rule{
			ID: "IOM-009", Title: "The firmware offers interrupt remapping", Severity: isolation.Medium,
			Why:     "where the firmware's DMAR table does not offer it the kernel can't switch remapping on",
			Fix:     "switch interrupt remapping (often called \"Intel VT-d\" with its sub-items, or \"x2APIC\") on in the firmware setup, or update the firmware",
			Verify:  "od -An -tx1 -j37 -N1 /sys/firmware/acpi/tables/DMAR",
			Sources: []string{"Linux: include/linux/dmar.h (DMAR_INTR_REMAP)", "Intel VT-d specification 8.1"},
		}, Judge: firmwareOffersRemapping},
		{Rule: finding.Rule{
			ID: "IOM-010", Title: "Every IOMMU unit remaps interrupts", Severity: isolation.High,
			Why:     "one unit without it leaves the functions behind it free to forge interrupts",
			Fix:     "move the functions below that unit to other slots, or update the firmware",
			Verify:  "grep -H . /sys/class/iommu/dmar*/intel-iommu/ecap  # bit 3",
			Sources: []string{"Linux: drivers/iommu/intel/iommu.h (ecap_ir_support)"},
		}, Judge: unitsRemap},
	}
}

// interruptsRemapped judges the node once for all functions: remapping is the
// whole node's. On machines that are neither Intel's nor AMD's a chip's name tells
// it only where it is good, since older kernels name Arm's chips alike.
func interruptsRemapped(n *facts.Node) Answer {
	var devices []pci.Address
	var found isolation.Interrupts
	for _, f := range assignable(n) {
		if of := isolation.InterruptsOf(n.Snapshot, f); len(devices) == 0 || len(of.Plain) > 0 {
			found = of
		}
		devices = append(devices, f.Address)
	}
	if len(devices) == 0 {
		found = isolation.InterruptsOf(n.Snapshot, &device.Function{})
	}
	seen := facts.Fact{Path: "/sys/kernel/irq/*/chip_name", Value: strings.Join(n.Snapshot.Host.IRQChips, " "), How: "read"}
	remapped, known := found.Remapped()
	switch {
	case remapped:
		return pass(strings.Join(found.Safe, ", "), seen)
	case known && isX86(n):
		return fail(fmt.Sprintf("interrupts are not remapped (chip %s)", strings.Join(found.Plain, ", ")), seen).reaching(devices...)
	case known:
		return say(finding.Unknown, "whether interrupts are isolated can't be told from the chips' names on this architecture; VFIO checks it itself as long as allow_unsafe_interrupts is off", []facts.Fact{seen})
	}
	return say(finding.Unknown, "whether interrupts are remapped can't be told: no MSI of a PCI function is in use", []facts.Fact{seen})
}

// isX86 reports whether the node may have remapping of the kind that chips' names
// tell of: a VT-d or AMD-Vi unit, or no IOMMU at all.
func isX86(n *facts.Node) bool {
	for _, unit := range n.Snapshot.Host.IOMMUs {
		if strings.HasPrefix(unit, "dmar") || strings.HasPrefix(unit, "ivhd") {
			return true
		}
	}
	return len(n.Snapshot.Host.IOMMUs) == 0
}

// unsafeInterrupts judges the parameter of one of its two modules. While
// interrupts are remapped it changes nothing today, and weighs less.
func unsafeInterrupts(n *facts.Node, module string) Answer {
	found := parameter{
		module: module, name: "allow_unsafe_interrupts", good: []string{"N"}, bad: "the parameter is on", none: "module " + module + " is not there",
	}.judge(n)
	if found[0].State == finding.Fail && interruptsRemapped(n)[0].State == finding.Pass {
		found[0].Text += "; it changes nothing while interrupts are remapped, but would hide it if they were not"
		return found.weighs(isolation.Medium)
	}
	return found
}

func firmwareOffersRemapping(n *facts.Node) Answer {
	flags, table := n.DMAR()
	switch {
	case table.Status == facts.Absent:
		return notApplicable("the firmware has no DMAR table: no VT-d", table)
	case !table.OK():
		return unknown("what the firmware offers", table)
	case !flags.InterruptRemapping:
		return fail("the firmware's DMAR table says that interrupt remapping is not supported", table)
	case flags.X2APICOptOut:
		return pass("offered, but the firmware asks the kernel not to use x2APIC", table)
	}
	return pass("offered", table)
}

// unitsRemap looks at bit 3 of each VT-d unit's extended capabilities.
func unitsRemap(n *facts.Node) Answer {
	var found Answer
	units := n.VTdUnits()
	for _, u := range units {
		switch {
		case !u.Extended.OK():
			found = append(found, unknown("what "+u.Name+" can do", u.Extended).object("IOMMU "+u.Name)...)
		case !u.RemapsInterrupts:
			found = append(found, fail(u.Name+" can't remap interrupts", u.Extended).object("IOMMU "+u.Name).reaching(u.Functions...)...)
		}
	}
	switch {
	case len(units) == 0:
		return notApplicable("there is no VT-d unit")
	case len(found) == 0:
		return pass(count(len(units), "unit"), units[0].Extended)
	}
	return found
}

// trustedDeviceChecks returns the checks of what the IOMMU takes a device's word
// for.
func trustedDeviceChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-019", Title: "Functions that are given away translate no addresses themselves", Severity: isolation.High, Cheap: true,
			Why:     "with ATS the IOMMU takes the device's word for addresses that it marks as translated: firmware that a tenant took over reaches any memory",
			Fix:     isolation.Fix(isolation.ATSEnabled),
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|ATSCtl'",
			Sources: []string{"Linux: drivers/pci/ats.c", "Linux: include/uapi/linux/pci_regs.h (PCI_ATS_CTRL_ENABLE)"},
		}, Judge: noATS},
		{Rule: finding.Rule{
			ID: "IOM-020", Title: "Functions that are given away neither ask for pages nor tag address spaces", Severity: isolation.Medium, Cheap: true,
			Why:     "page requests and PASIDs are for sharing a process's memory with a device, and widen what the kernel does at a device's word",
			Fix:     "leave shared virtual addressing off in the driver that had the function before, and reset the function",
			Verify:  "lspci -vvv | grep -E '^[0-9a-f]|PRICtl|PASIDCtl'",
			Sources: []string{"Linux: drivers/pci/ats.c", "Linux: include/uapi/linux/pci_regs.h (PCI_PRI_CTRL_ENABLE, PCI_PASID_CTRL_ENABLE)"},
		}, Judge: noSharedAddressing},
	}
}

func noATS(n *facts.Node) Answer {
	functions := assignable(n)
	var found Answer
	for _, f := range functions {
		if isEnabled(f.Capabilities.ATS) {
			found = append(found, fail(f.Address.String()+" has ATS on", switched(f, "ATS")...).on(f)...)
		}
	}
	return showing(orPass(append(found, unreadable(functions)...), len(functions)), functions, func(f *device.Function) []facts.Fact { return switched(f, "ATS") })
}

func noSharedAddressing(n *facts.Node) Answer {
	functions := assignable(n)
	var found Answer
	for _, f := range functions {
		var on []string
		if isEnabled(f.Capabilities.PRI) {
			on = append(on, "page requests (PRI)")
		}
		if isEnabled(f.Capabilities.PASID) {
			on = append(on, "PASIDs")
		}
		if len(on) > 0 {
			found = append(found, fail(fmt.Sprintf("%s has %s on", f.Address, strings.Join(on, " and ")), switched(f, "PRI", "PASID")...).on(f)...)
		}
	}
	said := orPass(append(found, unreadable(functions)...), len(functions))
	return showing(said, functions, func(f *device.Function) []facts.Fact { return switched(f, "PRI", "PASID") })
}

func isEnabled(s *pci.Switchable) bool { return s != nil && s.Enabled }

// traceChecks returns the checks of what the kernel tells of past and present.
func traceChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "IOM-004", Title: "The kernel is not tainted by a user's doing", Severity: isolation.Medium, Cheap: true,
			Why:     "making a no-IOMMU group taints the kernel (flag U), and stays to be seen after the mode was switched off again; the flag has other causes too",
			Fix:     "find in the kernel's log what set the flag, and reboot",
			Verify:  "cat /proc/sys/kernel/tainted  # bit 6",
			Sources: []string{"Linux: drivers/vfio/group.c (add_taint(TAINT_USER))", "Linux: Documentation/admin-guide/tainted-kernels.rst"},
		}, Judge: notTainted},
		{Rule: finding.Rule{
			ID: "IOM-024", Title: "Debug files of the kernel are root's alone", Severity: isolation.Low,
			Why:     "below /sys/kernel/debug are the IOMMU's tables and switches of drivers",
			Fix:     "`chmod 0700 /sys/kernel/debug`, or unmount it",
			Verify:  "stat -c '%A %n' /sys/kernel/debug",
			Sources: []string{"Linux: Documentation/filesystems/debugfs.rst", "Linux: Documentation/ABI/testing/debugfs-vfio"},
		}, Judge: debugIsRoots},
	}
}

func notTainted(n *facts.Node) Answer {
	const user = 1 << 6
	seen := n.Read("proc/sys/kernel/tainted")
	flags, err := strconv.ParseUint(seen.Value, 10, 64)
	switch {
	case !seen.OK() || err != nil:
		return unknown("whether the kernel is tainted", seen)
	case flags&user != 0:
		return fail("the kernel is tainted by a user's doing (U), maybe by a no-IOMMU group", seen)
	}
	return pass("flag U is not set", seen)
}

func debugIsRoots(n *facts.Node) Answer {
	const others = 0o077
	mode, seen := n.Permissions("sys/kernel/debug")
	names, list := n.List("sys/kernel/debug")
	switch {
	case seen.Status == facts.Absent, list.OK() && len(names) == 0:
		return pass("not mounted", seen)
	case !seen.OK():
		return unknown("who may read the debug files", seen)
	case mode&others != 0:
		return fail(fmt.Sprintf("the debug files are open to others (%v)", mode), seen)
	}
	return pass("root's alone", seen)
}
