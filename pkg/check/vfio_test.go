package check_test

func vfioFaults() []fault {
	return []fault{}
}
