package check

// nicChecks returns the checks of group NIC.
func nicChecks() []Check {
	return []Check{}
}
