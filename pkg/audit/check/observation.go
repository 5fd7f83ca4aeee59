package check

import "slices"

// observationChecks returns the checks of group OBS, and of what the node's own
// accounts say of one another.
func observationChecks() []Check {
	return slices.Concat(ledgerChecks(), []Check{replayCheck(), coverageCheck()}, agreementChecks())
}
