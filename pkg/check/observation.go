package check

// observationChecks returns the checks of group OBS.
func observationChecks() []Check {
	return []Check{}
}
