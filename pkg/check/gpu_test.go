package check_test

func gpuFaults() []fault {
	return []fault{}
}
