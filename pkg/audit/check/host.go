package check

import (
	"slices"
	"strings"
)

// hostChecks returns the checks of group HOST: CPU, memory and boot of the node.
func hostChecks() []Check {
	all := slices.Concat(bootChecks(), cpuChecks(), memoryChecks(), kernelChecks(), bmcChecks(), numaChecks())
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}
