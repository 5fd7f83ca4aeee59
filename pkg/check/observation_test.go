package check_test

func observationFaults() []fault {
	return []fault{}
}
