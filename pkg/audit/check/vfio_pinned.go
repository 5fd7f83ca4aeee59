package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

func vfioPinnedCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "VFIO-018", Title: "What a VMM can pin for DMA is bounded by its cgroup", Severity: isolation.Low,
		Why:     "memory that is pinned for a device can't be reclaimed: a VMM without a bound takes the node's",
		Fix:     "give the pod a memory limit, and its RuntimeClass an overhead; have Kata put the VMM into the pod's cgroup (sandbox_cgroup_only = true)",
		Verify:  "cat /proc/<pid>/cgroup /proc/<pid>/limits; cat /sys/fs/cgroup/<cgroup>/memory.max, and that of the cgroups above",
		Sources: []string{"Linux: drivers/vfio/vfio_iommu_type1.c vfio_lock_acct", "Linux: mm/util.c __account_locked_vm"},
	}, Judge: pinningBounded}
}

func pinningBounded(n *facts.Node) []finding.Finding {
	users, seen := n.Users()
	var found []finding.Finding
	var looked []*vfio.Usage
	for i := range users {
		u := &users[i]
		if !u.Holds() {
			continue
		}
		looked = append(looked, u)
		for _, f := range pinningOf(n, u) {
			f.Object = fmt.Sprintf("pid %d (%s)", u.PID, u.Comm)
			f.Devices = heldBy(n, u)
			found = append(found, f)
		}
	}
	switch {
	case !seen.OK() && (anyOnVFIO(n) || len(looked) > 0):
		return append(found, unknown("what VMMs can pin", seen)...)
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable("nobody holds a function")
	}
	return showing(pass(count(len(looked), "VMM")), looked, func(u *vfio.Usage) []facts.Fact { return boundsOf(n, u) })
}

// pinningOf returns what is wrong with one holder. What it pins is its own memory,
// which its cgroup counts; where that has no bound the limit of locked memory may be
// one.
func pinningOf(n *facts.Node, u *vfio.Usage) []finding.Finding {
	_, bounded, limits, err := n.MemoryBound(u.Cgroup)
	if bounded {
		return nil
	}
	free, known, locks := n.LocksAtWill(u.PID)
	seen := slices.Concat(limits, locks)
	switch {
	case known && !free:
		return nil
	case err != nil:
		f := unknown("what "+u.String()+" can pin", seen...)
		f[0].Text = fmt.Sprintf("what %s can pin can't be told: %v", u.String(), err)
		return f
	case !known:
		return unknown("what "+u.String()+" can pin", seen...)
	}
	return fail(u.String()+" can pin all memory of the node: none of its cgroups has a limit", seen...)
}

// boundsOf returns what was read of the bounds of one holder.
func boundsOf(n *facts.Node, u *vfio.Usage) []facts.Fact {
	_, bounded, limits, _ := n.MemoryBound(u.Cgroup)
	if bounded {
		return limits
	}
	_, _, locks := n.LocksAtWill(u.PID)
	return append(limits, locks...)
}

// heldBy returns the functions that a process holds, by address.
func heldBy(n *facts.Node, u *vfio.Usage) []pci.Address {
	var held []pci.Address
	holdings, _ := n.Holdings()
	for i := range holdings {
		if holdings[i].Process.PID == u.PID {
			held = append(held, holdings[i].Devices...)
		}
	}
	slices.SortFunc(held, pci.Address.Compare)
	return slices.Compact(held)
}
