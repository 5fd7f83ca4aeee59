package check

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// unseen is unknown if a rule found no process of its kind, and not all processes of the node were seen: one of the kind may run.
// found is how many it found.
func unseen(n *facts.Node, found int, what string) Answer {
	if found > 0 {
		return nil
	}
	if _, seen := n.Users(); !seen.OK() {
		return unknown(what, seen)
	}
	return nil
}

// unseenHolders is unknown if processes that were not seen may hold functions. Without a function on VFIO, there is none to hold.
func unseenHolders(n *facts.Node, what string) Answer {
	if _, seen := n.Holdings(); !seen.OK() && anyOnVFIO(n) {
		return unknown(what, seen)
	}
	return nil
}

// withRunning adds the findings about processes to a judgment on configuration. They replace a pass: a process keeps the
// settings with which it started.
func withRunning(found, running Answer) Answer {
	if len(running) > 0 && isClean(found) {
		return running
	}
	return append(found, running...)
}

// isClean reports whether a configuration passes, or the rule does not apply to it.
func isClean(found Answer) bool {
	return slices.ContainsFunc(found, func(f finding.Finding) bool { return f.State == finding.Pass || f.State == finding.NotApplicable })
}
