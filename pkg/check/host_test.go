package check_test

func hostFaults() []fault {
	return []fault{}
}
