package check

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

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

func noATS(n *facts.Node) []finding.Finding {
	functions := assignable(n)
	var found []finding.Finding
	for _, f := range functions {
		if isEnabled(f.Capabilities.ATS) {
			found = append(found, about(f, fail(f.Address.String()+" has ATS on", switched(f, "ATS")...))...)
		}
	}
	return showing(orPass(append(found, unreadable(functions)...), len(functions)), functions, func(f *device.Function) []facts.Fact { return switched(f, "ATS") })
}

func noSharedAddressing(n *facts.Node) []finding.Finding {
	functions := assignable(n)
	var found []finding.Finding
	for _, f := range functions {
		var on []string
		if isEnabled(f.Capabilities.PRI) {
			on = append(on, "page requests (PRI)")
		}
		if isEnabled(f.Capabilities.PASID) {
			on = append(on, "PASIDs")
		}
		if len(on) > 0 {
			found = append(found, about(f, fail(fmt.Sprintf("%s has %s on", f.Address, strings.Join(on, " and ")), switched(f, "PRI", "PASID")...))...)
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

func notTainted(n *facts.Node) []finding.Finding {
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

func debugIsRoots(n *facts.Node) []finding.Finding {
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
