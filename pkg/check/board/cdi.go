package board

// goodCdi sets up what the checks of cdi look at.
func (t *Tree) goodCdi() {}
