package twin_test

// kind is what a step is, for the question which states can be reached by which steps.
type kind uint8

const (
	normal kind = 0
	// fault: the model's budget of faults pays for it, and nothing may depend on it.
	fault kind = 1 << iota
	// forced: a claim is deallocated that a kubelet still has. A fault.
	forced
	// unlikely: it may happen at any time, and nothing may depend on it.
	unlikely
	// freesTwin: the twin's claim is deallocated.
	freesTwin
	// endsVM: the VM ends.
	endsVM
	// timesOut: our claim is deallocated before it has an answer.
	timesOut
)

// emit is called for each step with the next state.
type emit func(next state, name string, k kind)

// search visits all states that can be reached, the nearest first, and follows all steps from each.
func (m *model) search() {
	m.decisions, m.planIndex, m.index, m.broken = map[view]decided{}, map[string]uint8{}, map[bits]uint32{}, map[property]failure{}
	m.planOf(nil)
	start := state{publishedTwin: true, publishedOurs: true, publishedFit: true, faults: m.faults}
	m.visit(start.pack(), 0, 0)
	for at := uint32(0); int(at) < len(m.states); at++ {
		s := m.states[at].unpack()
		m.starts = append(m.starts, uint32(len(m.edges)))
		m.judge(&s, at)
		if _, ok := m.broken[m.until]; ok {
			return
		}
		m.steps(&s, func(n state, _ string, k kind) { m.take(&s, n, at, k) })
	}
	m.starts = append(m.starts, uint32(len(m.edges)))
}

// steps are all steps from a state.
func (m *model) steps(s *state, follow emit) {
	limited := func(n state, name string, k kind) {
		if k&forced != 0 && !m.forces {
			return
		}
		if k&(fault|forced) != 0 {
			if s.faults == 0 {
				return
			}
			if s.faults != noLimit {
				n.faults--
			}
		}
		follow(n, name, k)
	}
	m.schedulerSteps(s, limited)
	m.pluginSteps(s, limited)
	m.vendorSteps(s, limited)
	m.sliceSteps(s, limited)
	for i := range s.controllers {
		m.controllerSteps(s, i, limited)
	}
}

// take follows one step.
func (m *model) take(s *state, n state, at uint32, k kind) {
	n = n.tidy()
	to := m.visit(n.pack(), at, m.depth[at]+1)
	if s.plugin == passedPods && n.plugin == bound && s.prepared() {
		m.breaks(disturbed, to, int(m.depth[at])+1)
		if s.hadIt {
			m.breaks(robbed, to, int(m.depth[at])+1)
		}
	}
	if k&(fault|forced|unlikely) == 0 && to != at {
		m.edges = append(m.edges, edgeTo(to, k))
	}
}

// visit returns the state's index.
func (m *model) visit(b bits, from uint32, depth uint16) uint32 {
	if i, ok := m.index[b]; ok {
		return i
	}
	i := uint32(len(m.states))
	m.index[b] = i
	m.states, m.from, m.depth = append(m.states, b), append(m.from, from), append(m.depth, depth)
	return i
}

// edge is a step that is not a fault: the state that it leads to or comes from, and in the upper bits of what kind it is.
type edge uint32

const edgeBits = 28

// marked are the kinds that edges have bits for, from the lowest.
func marked() [3]kind { return [...]kind{freesTwin, endsVM, timesOut} }

func edgeTo(state uint32, k kind) edge {
	e := edge(state)
	for i, marked := range marked() {
		if k&marked != 0 {
			e |= 1 << (edgeBits + i)
		}
	}
	return e
}

func (e edge) state() uint32 { return uint32(e) & (1<<edgeBits - 1) }

// turn turns the edges around: those that lead to a state are in[state] to in[state+1] of back.
func (m *model) turn() (in []uint32, back []edge) {
	in = make([]uint32, len(m.states)+1)
	for _, e := range m.edges {
		in[e.state()+1]++
	}
	for i := 1; i < len(in); i++ {
		in[i] += in[i-1]
	}
	next := append([]uint32(nil), in...)
	back = make([]edge, len(m.edges))
	for from := range m.states {
		for _, e := range m.edges[m.starts[from]:m.starts[from+1]] {
			back[next[e.state()]] = edge(from) | e&^(1<<edgeBits-1)
			next[e.state()]++
		}
	}
	return in, back
}

// reach reports from which states the goal can be reached by steps that are none of without.
func (m *model) reach(goal func(*state) bool, without kind, in []uint32, back []edge) []bool {
	reached, barred := make([]bool, len(m.states)), edgeTo(0, without)
	var queue []uint32
	for i, b := range m.states {
		if s := b.unpack(); goal(&s) {
			reached[i] = true
			queue = append(queue, uint32(i))
		}
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for _, e := range back[in[at]:in[at+1]] {
			if from := e.state(); !reached[from] && e&barred == 0 {
				reached[from] = true
				queue = append(queue, from)
			}
		}
	}
	return reached
}

// trace returns the steps to a state.
func (m *model) trace(at uint32) []string {
	if at == 0 {
		return nil
	}
	s, step := m.states[m.from[at]].unpack(), ""
	m.steps(&s, func(n state, name string, _ kind) {
		if n = n.tidy(); n.pack() == m.states[at] {
			step = name
		}
	})
	return append(m.trace(m.from[at]), step)
}
