package twin_test

// schedulerSteps are those of the scheduler and of what else deallocates claims. It allocates our device whatever rule
// is on it, which only adds behaviors.
func (m *model) schedulerSteps(s *state, emit emit) {
	m.allocateOurs(s, emit)
	m.allocateTwin(s, emit)
	if n := *s; s.our != 0 {
		n.our = 0
		n.claimChanged()
		k := forcedIf(s.plugin != pluginFree && s.who == s.our)
		if s.answer != answerReserved && s.answer != answerInUse {
			k |= timesOut
		}
		emit(n, "our claim is deallocated", k)
	}
	if n := *s; s.their != 0 {
		n.their = 0
		emit(n, "the twin's claim is deallocated", freesTwin|forcedIf(s.pods[s.their-1] != podNone))
	}
	m.viewSteps(s, emit)
}

// forcedIf is the kind of a deallocation. It is forced if a kubelet still has the claim.
func forcedIf(inUse bool) kind {
	if inUse {
		return forced
	}
	return normal
}

// allocateOurs gives our device to a claim. A claim that a VM still has is not allocated again.
func (m *model) allocateOurs(s *state, emit emit) {
	if s.our != 0 {
		return
	}
	for i := range m.claims {
		if s.plugin >= held && s.plugin != left && s.who == i+1 {
			continue
		}
		n := *s
		n.our, n.answer = i+1, answerNone
		n.claimChanged()
		emit(n, "scheduler: allocate our device", normal)
	}
}

// allocateTwin gives the twin to a claim if the scheduler sees no rule, or if the claim tolerates it.
func (m *model) allocateTwin(s *state, emit emit) {
	if s.their != 0 {
		return
	}
	for i := range m.claims {
		if s.pods[i] != podNone {
			continue
		}
		n := *s
		n.their = i + 1
		if s.sees == seesNone {
			emit(n, "scheduler: allocate the twin", normal)
		} else if m.tolerated {
			emit(n, "scheduler: allocate the twin to a claim that tolerates the rule", fault)
		}
	}
}

// viewSteps move the scheduler's view forward, and let Grace pass.
func (m *model) viewSteps(s *state, emit emit) {
	n := *s
	switch {
	case s.rule.stands && s.sees != seesRule:
		n.sees = seesRule
		emit(n, "scheduler: sees the rule", normal)
	case !s.rule.stands && s.sees != seesNone:
		n.sees = seesNone
		emit(n, "scheduler: sees that the rule is gone", normal)
	}
	if n := *s; s.rule.stands && s.sees == seesDeleted {
		n.sees = seesNone
		emit(n, "scheduler: sees that the earlier rule is gone", normal)
	}
	if n := *s; s.rule.stands && !s.rule.old && (s.sees == seesRule || m.schedulerLags) {
		n.rule.old = true
		emit(n, "Grace passes", normal)
	}
}
