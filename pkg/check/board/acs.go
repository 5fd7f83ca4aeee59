package board

// goodAcs sets up what the checks of acs look at.
func (t *Tree) goodAcs() {}
