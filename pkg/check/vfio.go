package check

// vfioChecks returns the checks of group VFIO.
func vfioChecks() []Check {
	return []Check{}
}
