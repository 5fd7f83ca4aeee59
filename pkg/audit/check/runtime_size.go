package check

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeSizeChecks are about the size of VMs.
func runtimeSizeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-030", Title: "A VM of a pod with limits is no smaller than one of a pod without", Severity: isolation.Low,
			Why: "Kata's Rust runtime adds overhead_memory, which is 32 MiB unless somebody sets it, to a pod's memory limits, and leaves default_memory out: " +
				"a container with a small limit, or with a CPU limit alone, has a VM that does not boot, and its device is bound and reset for nothing at each try",
			Fix:     "`overhead_memory` in Kata's hypervisor section, as large as `default_memory`; our drop-in for the Rust runtime sets it",
			Verify:  "kata-vfio-audit handlers",
			Sources: []string{"Kata 4.1: docs/how-to/how-to-size-sandbox-overhead-runtime-rs.md", "Kata 4.1: runtime-rs resource/src/cpu_mem/initial_size.rs"},
		}, Judge: ofDeviceVMs(limitedSize)},
	}
}

func limitedSize(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	sizes := kataHandlerOf(h, k)
	seen := says(k.Hypervisor("default_memory"), k.Hypervisor("overhead_memory"), k.Runtime("static_sandbox_resource_mgmt"))
	if sizes.FixedSize && sizes.LimitedMiB < sizes.MemoryMiB {
		return fmt.Sprintf("a pod without limits has a VM of %d MiB, one with limits has %d MiB beside them", sizes.MemoryMiB, sizes.LimitedMiB), seen
	}
	return "", seen
}
