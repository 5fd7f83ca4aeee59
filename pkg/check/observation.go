package check

// observationChecks returns the checks of group OBS, and of what the node's own
// accounts say of one another.
func observationChecks() []Check {
	return agreementChecks()
}
