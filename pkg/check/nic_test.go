package check_test

func nicFaults() []fault {
	return []fault{}
}
