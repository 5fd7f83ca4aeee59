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
		}, Judge: func(n *facts.Node) []finding.Finding { return unsafeInterrupts(n, "vfio_iommu_type1") }},
		{Rule: finding.Rule{
			ID: "IOM-007", Title: "iommufd refuses unsafe interrupts", Severity: isolation.Critical, Cheap: true,
			Why:     "iommufd has the switch of VFIO type 1 once more, and it is as good a way around interrupt remapping",
			Fix:     isolation.UnsafeInterruptsFix("/sys/module/iommufd/parameters/allow_unsafe_interrupts"),
			Verify:  "cat /sys/module/iommufd/parameters/allow_unsafe_interrupts",
			Sources: []string{"Linux: drivers/iommu/iommufd/device.c"},
		}, Judge: func(n *facts.Node) []finding.Finding { return unsafeInterrupts(n, "iommufd") }},
		{Rule: finding.Rule{
			ID: "IOM-008", Title: "No kernel argument weakens interrupt remapping", Severity: isolation.Critical, Cheap: true,
			Why:     "intremap=off switches remapping off; with intremap=nosid a function may claim to be another and so raise that one's interrupts",
			Fix:     "take intremap= out of the boot loader's configuration and reboot",
			Verify:  "grep -o 'intremap=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (intremap=)", "Linux: drivers/iommu/irq_remapping.c"},
		}, Judge: func(n *facts.Node) []finding.Finding {
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
func interruptsRemapped(n *facts.Node) []finding.Finding {
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
		failed := fail(fmt.Sprintf("interrupts are not remapped (chip %s)", strings.Join(found.Plain, ", ")), seen)
		failed[0].Devices = devices
		return failed
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
func unsafeInterrupts(n *facts.Node, module string) []finding.Finding {
	allow := n.Parameter(module, "allow_unsafe_interrupts")
	var found []finding.Finding
	switch {
	case allow.Running.On():
		found = pending(fail("the parameter is on", allow.Running), &allow, "N")
	case !allow.Running.Known():
		return unknown("the parameter", allow.Running)
	case allow.Running.Status == facts.Absent:
		found = setLater(notApplicable("module "+module+" is not there", allow.Running), &allow, "N")
	default:
		found = setLater(pass("off", allow.Running), &allow, "N")
	}
	if found[0].State == finding.Fail && interruptsRemapped(n)[0].State == finding.Pass {
		found[0].Severity = isolation.Medium
		found[0].Text += "; it changes nothing while interrupts are remapped, but would hide it if they were not"
	}
	return found
}

func firmwareOffersRemapping(n *facts.Node) []finding.Finding {
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
func unitsRemap(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	units := n.VTdUnits()
	for _, u := range units {
		switch {
		case !u.Extended.OK():
			found = append(found, objectOf("IOMMU "+u.Name, unknown("what "+u.Name+" can do", u.Extended))...)
		case !u.RemapsInterrupts:
			failed := objectOf("IOMMU "+u.Name, fail(u.Name+" can't remap interrupts", u.Extended))
			failed[0].Devices = u.Functions
			found = append(found, failed...)
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

// objectOf says what the findings are about.
func objectOf(name string, found []finding.Finding) []finding.Finding {
	for i := range found {
		found[i].Object = name
	}
	return found
}
