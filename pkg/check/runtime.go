package check

// runtimeChecks returns the checks of group RT.
func runtimeChecks() []Check {
	return []Check{}
}
