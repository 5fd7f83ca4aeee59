package check_test

func runtimeFaults() []fault {
	return []fault{}
}
