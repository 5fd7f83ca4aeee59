package check_test

func resetFaults() []fault {
	return []fault{}
}
