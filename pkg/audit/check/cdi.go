package check

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// cdiChecks returns the checks of group CDI: what the runtimes inject into
// containers is what the plugin wrote for prepared claims.
func cdiChecks() []Check {
	list := "grep -rlE '/dev/vfio|/dev/iommu' /etc/cdi /run/cdi; ls /var/lib/kata-vfio/journal"
	return []Check{
		specOwnerCheck(),
		{Rule: finding.Rule{
			ID: "CDI-002", Title: "VFIO nodes are in specs of the plugin's for prepared claims only", Severity: isolation.Critical,
			Why:     "who names a CDI device gets its nodes: a spec that nobody checks gives away a device past its claim",
			Fix:     "remove the spec, and find out who wrote it; the plugin writes its own again at its next start",
			Verify:  list,
			Sources: []string{"CDI: SPEC.md"},
		}, Judge: specsAreOurs},
		{Rule: finding.Rule{
			ID: "CDI-003", Title: "No CDI device and no VFIO node is in two specs", Severity: isolation.Critical,
			Why:     "one device under two names can be allocated twice",
			Fix:     "take the device from one of the two drivers",
			Verify:  list,
			Sources: []string{"CDI: SPEC.md"},
		}, Judge: specsDontOverlap},
		{Rule: finding.Rule{
			ID: "CDI-004", Title: "No spec is left of a claim that is not prepared", Severity: isolation.High,
			Why:    "the device can be attached again after it was taken back, and before or while it is another tenant's",
			Fix:    "restart the plugin, which removes such specs, or remove the file",
			Verify: list,
		}, Judge: noStaleSpecs},
		{Rule: finding.Rule{
			ID: "CDI-005", Title: "Specs run nothing and mount nothing of the node's that is not known", Severity: isolation.Medium,
			Why:     "a hook is a program that runs as root on the node for each container, and a mount may be any of the node's files",
			Fix:     "look at what the spec brings and who wrote it; remove it where nobody knows",
			Verify:  "grep -rnE 'hooks|hookName|hostPath|LD_PRELOAD' /etc/cdi /run/cdi",
			Sources: []string{"CDI: SPEC.md"},
		}, Judge: specsAreHarmless},
		{Rule: finding.Rule{
			ID: "CDI-006", Title: "Control nodes of VFIO are given only where the claim's class asks for them", Severity: isolation.Medium,
			Why:    "with /dev/vfio/vfio or /dev/iommu a container can pin and map memory by itself",
			Fix:    "leave `controlNode` out of the DeviceClass, and prepare the claim again",
			Verify: "grep -rnE '/dev/vfio/vfio|/dev/iommu' /etc/cdi /run/cdi",
		}, Judge: controlNodesAsked},
		{Rule: finding.Rule{
			ID: "CDI-007", Title: "Names of CDI devices with VFIO nodes can't be guessed", Severity: isolation.Low,
			Why:    "where a pod may name CDI devices itself, a name that everybody knows is as good as a claim",
			Fix:    "have devices allocated by claims: the plugin's names begin with the claim's UID",
			Verify: list,
		}, Judge: namesArePerClaim},
	}
}
