package twin_test

// property is what must never happen, or what must stay possible.
type property uint8

const (
	none property = iota
	// twoConsumers: a VM and a container have the function.
	twoConsumers
	// disturbed: the plugin takes the function from a container.
	disturbed
	// robbed: from a container that had it when Prepare began.
	robbed
	// overbooked: our claim has a VM, or the promise of one, and a claim has the twin.
	overbooked
	// asleep: a claim waits for an answer, and nothing wakes the controller.
	asleep
	// lost: the GPU can't become free again: no claim, no rule, on its host driver.
	lost
	// noVM: no VM can get it again; noContainer: no container can.
	noVM
	noContainer
	// kept: while a container has the GPU, the scheduler goes on to choose it for VMs, or lets their pods wait.
	kept
	// offered: while a VM has it, the scheduler goes on to choose it for containers.
	offered
	properties
)

func (p property) String() string {
	return [...]string{
		"none", "two consumers", "container disturbed", "container robbed", "both allocated", "asleep", "lost", "no VM", "no container", "VMs kept waiting", "offered to containers",
	}[p]
}

// judge looks at one state.
func (m *model) judge(s *state, at uint32) {
	steps := int(m.depth[at])
	if s.plugin == held && s.prepared() {
		m.breaks(twoConsumers, at, steps)
	}
	if s.our != 0 && s.their != 0 && (s.answer == answerReserved || s.plugin == held && s.who == s.our) {
		m.breaks(overbooked, at, steps)
	}
	var c controller
	c.readRules(s)
	c.readClaims(s)
	if m.decide(c.view(s, false)).asleep {
		m.breaks(asleep, at, steps)
	}
}

// breaks notes the first state that breaks a property. The search meets the nearest first.
func (m *model) breaks(p property, at uint32, steps int) {
	if _, ok := m.broken[p]; !ok {
		m.broken[p] = failure{steps, at}
	}
}

// goal is what must stay possible from some states, by steps that are none of without.
type goal struct {
	property property
	from, to func(*state) bool
	without  kind
}

func goals() []goal {
	always := func(*state) bool { return true }
	return []goal{
		{lost, always, isFree, 0},
		{noVM, always, func(s *state) bool { return s.plugin == held && s.who == s.our && s.answer == answerReserved }, 0},
		{noContainer, always, (*state).prepared, 0},
		{kept, func(s *state) bool { return s.their != 0 }, func(s *state) bool { return s.ruleOurs && s.our == 0 }, freesTwin | timesOut},
		{offered, func(s *state) bool { return s.plugin == held }, func(s *state) bool { return s.sees == seesRule }, endsVM},
	}
}

// isFree reports whether nobody has the GPU, and both sides could be allocated.
func isFree(s *state) bool {
	return s.our == 0 && s.their == 0 && !s.ruleOurs && !s.rule.stands && s.sees == seesNone &&
		s.plugin == pluginFree && !s.prepared() && s.publishedTwin && s.publishedOurs && s.publishedFit
}

// pursue looks for states from which a goal can't be reached.
func (m *model) pursue() {
	in, back := m.turn()
	for _, g := range goals() {
		for i, ok := range m.reach(g.to, g.without, in, back) {
			if s := m.states[i].unpack(); !ok && g.from(&s) {
				m.breaks(g.property, uint32(i), int(m.depth[i]))
				break
			}
		}
	}
}
