package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// vfioRegisterChecks returns the checks of ways to a function's registers past
// VFIO.
func vfioRegisterChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-013", Title: "No process has a given function's registers mapped past VFIO", Severity: isolation.High,
			Why:     "a mapping of sysfs' resource files drives the device behind its owner's back, and outlives a change of tenant",
			Fix:     "end the process; lockdown=integrity on the kernel's command line forbids such mappings",
			Verify:  "grep -H 'resource[0-9]' /proc/[0-9]*/maps",
			Sources: []string{"Linux: drivers/pci/pci-sysfs.c pci_mmap_resource"},
		}, Judge: registersUnmapped},
	}
}

func registersUnmapped(n *facts.Node) []finding.Finding {
	users, seen := n.Users()
	var found []finding.Finding
	for i := range users {
		u := &users[i]
		for _, a := range u.Registers {
			if f, ok := n.Snapshot.Function(a); ok && n.IsAvailable(a) {
				said := about(f, fail(fmt.Sprintf("%s has registers of %s mapped", &u.Process, a),
					facts.Fact{Path: fmt.Sprintf("/proc/%d/maps", u.PID), Value: "resource file of " + a.String(), How: "process", Needs: facts.OfProcesses}))
				said[0].Object = fmt.Sprintf("pid %d (%s)", u.PID, u.Comm)
				found = append(found, said...)
			}
		}
	}
	switch {
	case !slices.ContainsFunc(n.Functions(), func(f *device.Function) bool { return n.IsAvailable(f.Address) }):
		return notApplicable("tenants can get no function of this node")
	case !seen.OK():
		return append(found, unknown("what processes have mapped", seen)...)
	case len(found) > 0:
		return found
	}
	return pass("no process has", seen)
}
