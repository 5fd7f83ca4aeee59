package check

// acsChecks returns the checks of group ACS.
func acsChecks() []Check {
	return []Check{}
}
