package check_test

func acsFaults() []fault {
	return []fault{}
}
