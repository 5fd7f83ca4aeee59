package board

// goodRuntime sets up what the checks of runtime look at.
func (t *Tree) goodRuntime() {}
