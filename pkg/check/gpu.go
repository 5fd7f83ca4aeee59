package check

// gpuChecks returns the checks of group GPU.
func gpuChecks() []Check {
	return []Check{}
}
