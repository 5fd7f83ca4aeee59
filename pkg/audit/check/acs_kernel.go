package check

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// acsKernelChecks returns the checks of what the kernel was told about ACS.
func acsKernelChecks() []Check {
	return []Check{
		// The override works by this argument alone: a kernel that has the patch, as
		// several distributions' have, is a stock one without it.
		{Rule: finding.Rule{
			ID: "ACS-006", Title: "The kernel is not told to believe in ACS that is not there", Severity: isolation.Critical, Cheap: true,
			Why:     "pcie_acs_override, a patch that was never in Linux, makes groups that say isolated where the hardware is not",
			Fix:     "take pcie_acs_override out of the boot loader's configuration and reboot; functions that share a group then go to one tenant",
			Verify:  "grep -o 'pcie_acs_override[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (which has no such parameter)"},
		}, Judge: func(n *facts.Node) []finding.Finding {
			return badArgument(n, "pcie_acs_override", func(string) string { return "makes the kernel believe in isolation that the hardware does not have" })
		}},
		{Rule: finding.Rule{
			ID: "ACS-007", Title: "No kernel argument switches ACS off", Severity: isolation.High, Cheap: true,
			Why:     "pci=disable_acs_redir= and pci=config_acs= take isolation away between devices, in the kernel documentation's own words",
			Fix:     "take the option out of the boot loader's configuration, or limit it to ports below which nothing is given to tenants, and reboot",
			Verify:  "grep -o ' pci=[^ ]*' /proc/cmdline",
			Sources: []string{"Linux: Documentation/admin-guide/kernel-parameters.txt (pci=)", "Linux: drivers/pci/pci.c (__pci_config_acs)"},
		}, Judge: func(n *facts.Node) []finding.Finding { return badArgument(n, "pci", isolation.WeakensACS) }},
	}
}
