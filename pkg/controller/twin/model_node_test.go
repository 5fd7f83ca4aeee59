package twin_test

// pluginSteps are those of our plugin and its kubelet.
func (m *model) pluginSteps(s *state, emit emit) {
	n := *s
	switch s.plugin {
	case pluginFree:
		if s.our != 0 && (!m.gates.reserved || s.answer == answerReserved) {
			n.plugin, n.who, n.hadIt = passedReserved, s.our, s.prepared()
			emit(n, "plugin: Prepare, the claim is reserved", normal)
		}
	case passedReserved:
		m.look(s, emit, m.gates.claims, s.their != 0, passedClaims, pluginFree, "plugin: list of claims")
	case passedClaims:
		m.look(s, emit, m.gates.pods, s.prepared(), passedPods, pluginFree, "plugin: pods of the kubelet")
	case passedPods:
		n.plugin = bound
		emit(n, "plugin: bind to VFIO", normal)
	case bound:
		m.look(s, emit, m.gates.boundClaims, s.their != 0, boundPassedClaims, ending, "plugin: list of claims, bound")
	case boundPassedClaims:
		m.look(s, emit, m.gates.boundPods, s.prepared(), held, ending, "plugin: pods of the kubelet, bound")
	case left:
		m.recoverySteps(s, emit)
	case held:
		n.plugin = ending
		emit(n, "VM ends", endsVM)
	case ending:
		n.plugin = pluginFree
		emit(n, "plugin: reset, bind to the host driver", normal)
		n.plugin = quarantined
		emit(n, "plugin: reset fails", fault)
	case quarantined:
		n.plugin = ending
		emit(n, "operator: release from quarantine", normal)
	}
	m.crash(s, emit)
}

// look is a point of the gate: it refuses what is taken.
func (m *model) look(s *state, emit emit, on, taken bool, pass, refuse uint8, name string) {
	n := *s
	n.plugin = pass
	if on && taken {
		n.plugin = refuse
	}
	emit(n, name, normal)
}

// recoverySteps are those after a crash with the function bound: the kubelet asks again, or the plugin returns it.
func (m *model) recoverySteps(s *state, emit emit) {
	n := *s
	if m.recoverKeeps {
		n.plugin = held
		emit(n, "plugin: recover keeps the claim", normal)
		return
	}
	if s.our == s.who && (!m.gates.reserved || s.answer == answerReserved) {
		n.plugin = bound
		emit(n, "plugin: Prepare again, the claim is reserved", normal)
	}
	n.plugin = ending
	emit(n, "plugin: recover gives back", normal)
}

// crash kills the plugin.
func (m *model) crash(s *state, emit emit) {
	n := *s
	switch s.plugin {
	case passedReserved, passedClaims, passedPods:
		n.plugin = pluginFree
	case bound, boundPassedClaims:
		n.plugin = left
	default:
		return
	}
	emit(n, "plugin crashes", fault)
}

// vendorSteps are those of the other driver and its kubelet. Slow or dead, it makes none.
func (m *model) vendorSteps(s *state, emit emit) {
	for i := range m.claims {
		n := *s
		switch s.pods[i] {
		case podNone:
			if s.their == i+1 {
				n.pods[i] = podStarted
				emit(n, "container: its kubelet reads the claim", normal)
			}
			continue
		case podStarted:
			if !s.onVFIO() || m.vendorBlind {
				n.pods[i] = podPrepared
				if m.vendorLate {
					n.pods[i] = podChecked
				}
				emit(n, "other driver: Prepare, the function is on its kernel driver", normal)
			}
		case podChecked:
			n.pods[i] = podPrepared
			emit(n, "other driver: answers late", normal)
		}
		n = *s
		n.pods[i] = podNone
		n.hadIt = n.hadIt && n.prepared()
		emit(n, "container ends", normal)
	}
}

// sliceSteps publish, late or not at all.
func (m *model) sliceSteps(s *state, emit emit) {
	if n := *s; s.publishedFit != s.fit() && s.publishedOurs {
		n.publishedFit = s.fit()
		emit(n, "plugin: publish the kernel driver and health", normal)
	}
	if n := *s; !s.publishedOurs {
		n.publishedOurs, n.publishedFit = true, s.fit()
		emit(n, "plugin: publish again", normal)
	} else if m.slicesVanish {
		n.publishedOurs, n.publishedFit = false, false
		emit(n, "our slice vanishes", fault)
	}
	if n := *s; !s.publishedTwin {
		n.publishedTwin = true
		emit(n, "other driver: publish again", normal)
	} else if m.slicesVanish {
		n.publishedTwin = false
		emit(n, "the twin's slice vanishes", fault)
	}
}
