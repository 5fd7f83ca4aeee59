package twin_test

// bits is a state in one word, the key of the search: millions of states then fit in memory.
type bits uint64

// push appends a value of so many bits.
func (b bits) push(v uint8, width int) bits {
	if v>>width != 0 {
		panic("a value has more bits than a state has room for")
	}
	return b<<width | bits(v)
}

// pop takes the last value off.
func (b *bits) pop(width int) uint8 {
	v := uint8(*b & (1<<width - 1))
	*b >>= width
	return v
}

func (b bits) flag(v bool) bits {
	if v {
		return b.push(1, 1)
	}
	return b.push(0, 1)
}

func (b *bits) popFlag() bool { return b.pop(1) == 1 }

// pack returns the state in one word. unpack is its inverse.
func (s *state) pack() bits {
	b := bits(0).push(s.our, 2).push(s.answer, 2).push(s.their, 2).flag(s.ruleOurs).flag(s.rule.stands).flag(s.rule.old)
	b = b.push(s.rule.mark, 2).flag(s.rule.exact).push(s.sees, 2).flag(s.publishedTwin).flag(s.publishedOurs).flag(s.publishedFit)
	b = b.push(s.plugin, 4).push(s.who, 2).flag(s.hadIt).push(s.pods[0], 2).push(s.pods[1], 2).push(s.faults, 2)
	return b<<(2*controllerBits) | s.controllers[0].pack()<<controllerBits | s.controllers[1].pack()
}

func (b bits) unpack() state {
	var s state
	s.controllers[1] = unpackController(b & (1<<controllerBits - 1))
	b >>= controllerBits
	s.controllers[0] = unpackController(b & (1<<controllerBits - 1))
	b >>= controllerBits
	s.faults, s.pods[1], s.pods[0], s.hadIt, s.who, s.plugin = b.pop(2), b.pop(2), b.pop(2), b.popFlag(), b.pop(2), b.pop(4)
	s.publishedFit, s.publishedOurs, s.publishedTwin, s.sees, s.rule.exact = b.popFlag(), b.popFlag(), b.popFlag(), b.pop(2), b.popFlag()
	s.rule.mark, s.rule.old, s.rule.stands, s.ruleOurs = b.pop(2), b.popFlag(), b.popFlag(), b.popFlag()
	s.their, s.answer, s.our = b.pop(2), b.pop(2), b.pop(2)
	return s
}

const (
	// controllerBits is how many bits a controller takes.
	controllerBits = 14
	// maxPlans and maxActions of a plan fit into them.
	maxPlans   = 32
	maxActions = 4
)

// pack returns the controller in controllerBits. What it has read and what it is about to write exclude each other.
func (c *controller) pack() bits {
	var b bits
	switch c.phase {
	case listedRules, cachedRules:
		b = b.flag(c.ruleOurs).flag(c.rule.stands).flag(c.rule.old).push(c.rule.mark, 2).flag(c.rule.exact).flag(c.currentOurs).flag(c.currentTwin)
	case listedClaims, cachedClaims:
		b = b.push(c.our, 2).push(c.answer, 2).push(c.their, 2).flag(c.currentClaim)
	case acting:
		b = b.push(c.plan, 5).push(c.done, 2).flag(c.currentOurs).flag(c.currentTwin).flag(c.currentClaim)
	}
	return b.push(c.phase, 3)
}

func unpackController(b bits) controller {
	c := controller{phase: b.pop(3)}
	switch c.phase {
	case listedRules, cachedRules:
		c.currentTwin, c.currentOurs, c.rule.exact, c.rule.mark = b.popFlag(), b.popFlag(), b.popFlag(), b.pop(2)
		c.rule.old, c.rule.stands, c.ruleOurs = b.popFlag(), b.popFlag(), b.popFlag()
	case listedClaims, cachedClaims:
		c.currentClaim, c.their, c.answer, c.our = b.popFlag(), b.pop(2), b.pop(2), b.pop(2)
	case acting:
		c.currentClaim, c.currentTwin, c.currentOurs, c.done, c.plan = b.popFlag(), b.popFlag(), b.popFlag(), b.pop(2), b.pop(5)
	}
	return c
}
