package board

// goodHost sets up what the checks of HOST look at.
func (t *Tree) goodHost() {}
