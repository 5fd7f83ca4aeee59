package twin_test

// controllerSteps are those of one controller.
func (m *model) controllerSteps(s *state, i int, emit emit) {
	switch c := s.controllers[i]; c.phase {
	case idle:
		if m.controllers == 2 || s.controllers[1-i].phase == idle {
			m.readSteps(s, i, emit)
		}
	case listedRules:
		c.readClaims(s)
		m.decideSteps(s, i, &c, true, emit)
	case listedClaims: // only where the order is wrong
		c.readRules(s)
		m.decideSteps(s, i, &c, true, emit)
	case cachedRules:
		c.readClaims(s)
		m.decideSteps(s, i, &c, m.cacheIsFresh, emit)
	case cachedClaims:
		c.readRules(s)
		m.decideSteps(s, i, &c, m.cacheIsFresh, emit)
	case acting:
		m.actStep(s, i, emit)
		n := *s
		n.controllers[i] = controller{}
		emit(n, "controller crashes", fault)
	}
}

// readSteps start a round: with a fresh list, or from the caches. A controller lists where its caches ask for it;
// caches that lag may ask at any time.
func (m *model) readSteps(s *state, i int, emit emit) {
	n, kind := *s, unlikely
	if m.asks(s) {
		kind = normal
	}
	if kind == normal || m.mixedCaches {
		n.controllers[i] = m.firstList(s)
		emit(n, "controller: list, first", kind)
	}
	var c controller
	c.readRules(s)
	c.readClaims(s)
	m.decideSteps(s, i, &c, m.cacheIsFresh, emit)
	if m.mixedCaches {
		c = controller{phase: cachedRules}
		c.readRules(s)
		n.controllers[i] = c
		emit(n, "controller: cached rules", unlikely)
		c = controller{phase: cachedClaims}
		c.readClaims(s)
		n.controllers[i] = c
		emit(n, "controller: cached claims", unlikely)
	}
}

// asks reports whether caches that are up to date ask for a fresh list.
func (m *model) asks(s *state) bool {
	var c controller
	c.readRules(s)
	c.readClaims(s)
	v := c.view(s, false)
	if m.decide(v).needsFresh {
		return true
	}
	v.late = true
	return m.decide(v).needsFresh
}

// firstList is the state of a controller after the first of its two lists.
func (m *model) firstList(s *state) controller {
	c := controller{phase: listedRules}
	if m.claimsFirst {
		c.phase = listedClaims
		c.readClaims(s)
		return c
	}
	c.readRules(s)
	return c
}

func (c *controller) readRules(s *state) {
	c.ruleOurs, c.rule, c.currentOurs, c.currentTwin = s.ruleOurs, s.rule, true, true
}

func (c *controller) readClaims(s *state) {
	c.our, c.answer, c.their, c.currentClaim = s.our, s.answer, min(s.their, 1), true
}

// decideSteps end a round: the controller decides and begins to act.
func (m *model) decideSteps(s *state, i int, c *controller, fresh bool, emit emit) {
	v := c.view(s, fresh)
	m.decideStep(s, i, c, v, emit)
	if !s.publishedTwin {
		v.late = true
		m.decideStep(s, i, c, v, emit)
	}
}

func (m *model) decideStep(s *state, i int, c *controller, v view, emit emit) {
	d := m.decide(v)
	n := *s
	n.controllers[i] = controller{}
	if d.plan != 0 {
		n.controllers[i] = controller{
			phase: acting, plan: d.plan, currentOurs: c.currentOurs, currentTwin: c.currentTwin, currentClaim: c.currentClaim,
		}
	}
	if n.controllers[i].phase != s.controllers[i].phase {
		emit(n, "controller: decide", normal)
	}
}

// actStep executes a controller's next action. The API server refuses it if its precondition is gone, and then the
// controller drops the rest.
func (m *model) actStep(s *state, i int, emit emit) {
	c := s.controllers[i]
	plan := m.plans[c.plan]
	n := *s
	done := m.execute(&n, i, plan[c.done])
	n.controllers[i].done++
	if !done || int(n.controllers[i].done) == len(plan) {
		n.controllers[i] = controller{}
	}
	emit(n, names[plan[c.done].verb], normal)
}

// execute is the API server's part.
func (m *model) execute(n *state, i int, a act) bool {
	c := n.controllers[i]
	switch a.verb {
	case createOurs:
		return when(!n.ruleOurs, func() { n.oursChanged(true) })
	case deleteOurs:
		return when(n.ruleOurs && (c.currentOurs || m.noPreconditions), func() { n.oursChanged(false) })
	case createTwin:
		return when(!n.rule.stands, func() { n.twinChanged(rulePart{stands: true, mark: a.claim, exact: a.claim != 0 && c.currentClaim}) })
	case touchTwin:
		return when(n.rule.stands && c.currentTwin, func() {
			n.twinChanged(rulePart{stands: true, old: n.rule.old, mark: a.claim, exact: a.claim != 0 && c.currentClaim})
		})
	case deleteTwin:
		return when(n.rule.stands && (c.currentTwin || m.noPreconditions), func() { n.twinChanged(rulePart{}) })
	default:
		return when(n.our == a.claim && (c.currentClaim || m.noPreconditions), func() {
			n.claimChanged()
			n.answer = answerOf(a.verb)
		})
	}
}

func when(ok bool, do func()) bool {
	if ok {
		do()
	}
	return ok
}

func answerOf(v verb) uint8 {
	switch v {
	case setReserved:
		return answerReserved
	case setInUse:
		return answerInUse
	default:
		return answerWaiting
	}
}
