package check

// hostChecks returns the checks of group HOST.
func hostChecks() []Check {
	return []Check{}
}
