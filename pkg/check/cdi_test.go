package check_test

func cdiFaults() []fault {
	return []fault{}
}
