package check

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// confidentialChecks returns the checks of group CC.
func confidentialChecks() []Check {
	return append([]Check{
		{Rule: finding.Rule{
			ID: "CC-001", Title: "The memory encryption that the node is configured for is on", Severity: isolation.High,
			Why:     "guests that count on it are refused, or run with memory that the node can read",
			Fix:     "switch TDX or SEV-SNP on in the firmware setup (memory encryption, its key count, the RMP), and see `dmesg | grep -i -e tdx -e sev`",
			Verify:  "cat /sys/module/kvm_intel/parameters/tdx /sys/module/kvm_amd/parameters/sev_snp",
			Sources: []string{"Linux: Documentation/arch/x86/tdx.rst", "Linux: Documentation/virt/kvm/x86/amd-memory-encryption.rst"},
		}, Judge: encryptionIsOn},
	}, confidentialLinkChecks()...)
}

// encryptionIsOn asks only of nodes that are configured for confidential guests, by
// a module's parameter: it is on by default on kernels that know it, and says N where
// the hardware or its firmware does not.
func encryptionIsOn(n *facts.Node) []finding.Finding {
	var found, on []finding.Finding
	for _, p := range [][2]string{{"kvm_intel", "tdx"}, {"kvm_amd", "sev_snp"}} {
		s := n.Parameter(p[0], p[1])
		next, set := s.Next()
		asked := set && isYes(next)
		for _, value := range n.Arguments(s.Name) {
			asked = asked || isYes(value)
		}
		switch {
		case s.Running.On():
			on = append(on, pass(s.Name+" is on", s.Running)...)
		case !asked:
		case s.Running.Status == facts.Absent:
			found = append(found, fail(fmt.Sprintf("%s is asked for, and %s is not loaded or does not know it", s.Name, p[0]), append(s.Configured, s.Running)...)...)
		case !s.Running.OK():
			found = append(found, unknown(s.Name, s.Running)...)
		default:
			found = append(found, fail(fmt.Sprintf("%s is asked for, and the kernel has it off", s.Name), append(s.Configured, s.Running)...)...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(on) > 0:
		return on
	}
	return notApplicable("the node is not configured for confidential guests")
}
