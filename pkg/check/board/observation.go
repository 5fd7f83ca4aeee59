package board

// goodObservation sets up what the checks of observation look at.
func (t *Tree) goodObservation() {}
