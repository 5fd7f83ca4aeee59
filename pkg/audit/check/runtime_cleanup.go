package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeCleanupChecks are about what is left of a VM whose shim is killed.
func runtimeCleanupChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-029", Title: "containerd gives Kata the time to end a VM whose shim is killed", Severity: isolation.Medium,
			Why: "containerd has Kata end such a VM, and kills that attempt after a limit, which is 5 s by default: the VM stays, with its devices and its network, " +
				"after its pod is gone, and the devices are refused to every other pod until somebody kills QEMU",
			Fix: "at the top level of containerd's configuration: `[timeouts]` with `\"io.containerd.timeout.shim.cleanup\" = \"60s\"`; then restart containerd. " +
				"`kata-vfio-bootstrap apply` sets it",
			Verify:  "containerd config dump | grep shim.cleanup",
			Sources: []string{"containerd 2.4: core/runtime/v2/shim.go cleanupAfterDeadShim", "Kata 4.1: virtcontainers/api.go CleanupContainer"},
		}, Judge: shimCleanup},
	}
}

// shortCleanup is how many seconds are too few for a VM with devices to end: the kernel
// unpins hundreds of GiB in tens of seconds.
const shortCleanup = 30

func shimCleanup(n *facts.Node) []finding.Finding {
	r := runtimes.Of(n)
	if found := damagedRuntimes(r); len(found) > 0 {
		return found
	}
	if !slices.ContainsFunc(r.Kata(), func(h runtimes.Handler) bool { return h.Engine == runtimes.Containerd }) {
		return notApplicable("containerd has no handler of Kata's", r.Files...)
	}
	limit := r.ShimCleanup
	seconds, ok := limit.Seconds()
	switch {
	case !limit.IsSet():
		return fail("containerd gives up after 5 s, its default", limit.Fact())
	case !ok:
		return fail(limit.Fact().Value+" is no duration: containerd does not start with it", limit.Fact())
	case seconds < shortCleanup:
		return fail(fmt.Sprintf("containerd gives up after %s; less than %d s is too short", limit.Text(), shortCleanup), limit.Fact())
	}
	return pass("containerd gives up after "+limit.Text(), limit.Fact())
}
