package board

// goodGpu sets up what the checks of gpu look at.
func (t *Tree) goodGpu() {}
