package twin_test

import "testing"

// The model checker: a search of all states that the processes around one GPU can reach, in every order of their steps.
//
//   - The scheduler allocates either device, and its view of rules lags behind; claims tolerate rules, and are
//     deallocated by force.
//   - Two controllers decide with [twin.Decide], side by side: a lease doesn't stop one that was paused. They read rules
//     and claims at different times, act later, and crash between two actions.
//   - The plugin passes its gate point by point, binds, answers, crashes and resets. The other driver prepares, slow or
//     never. The slices of both lag behind, and vanish.
//
// One twin is modeled; Decide treats each twin of a GPU alike, see [TestDecide].

// model is a model's options, and what its search finds.
type model struct {
	claims      uint8 // of each side, up to 2
	controllers int   // up to 2
	faults      uint8 // at most so many in one history, or noLimit
	gates       gates
	options
	mutation
	until property // the search ends where this property breaks; by default after all states

	decisions map[view]decided
	plans     [][]act
	planIndex map[string]uint8

	index  map[bits]uint32
	states []bits
	from   []uint32 // of each state: the one that it was found from
	depth  []uint16
	starts []uint32 // of each state: where its edges start
	edges  []edge
	broken map[property]failure
}

// failure is the shortest way to where a property breaks.
type failure struct {
	steps int
	at    uint32
}

// noLimit allows any number of faults; fewer than that is a limit.
const noLimit = 3

// gates are the points of the plugin's gate, before the function is bound and after.
type gates struct{ reserved, claims, pods, boundClaims, boundPods bool }

func allGates() gates { return gates{true, true, true, true, true} }

// options add behaviors.
type options struct {
	schedulerLags bool // the scheduler's view may be older than Grace
	tolerated     bool // claims may tolerate the rule
	forces        bool // claims may be deallocated by force
	slicesVanish  bool
	mixedCaches   bool // a controller's caches of rules and claims lag behind separately
	vendorLate    bool // the other driver answers long after it looked where the function is
}

// assumed is what the promises of the package rest on: Grace bounds the scheduler's view, and nobody forces anything.
func assumed() options { return options{slicesVanish: true, mixedCaches: true} }

// worst has no assumption about the scheduler, and none about people.
func worst() options {
	return options{schedulerLags: true, tolerated: true, forces: true, slicesVanish: true, mixedCaches: true}
}

// mutation switches off one thing.
type mutation struct {
	recoverKeeps    bool // a restarted plugin completes a claim without the gate
	cacheIsFresh    bool // decisions from caches count as fresh
	claimsFirst     bool // a fresh list is of claims, then of rules
	noPreconditions bool // the API server accepts writes to what has changed
	vendorBlind     bool // the other driver doesn't look where the function is
	edit            func(*view)
	drop            func(act) bool
}

// check searches the model and compares what breaks with the steps in want.
func (m *model) check(t *testing.T, want breaks) {
	t.Helper()
	m.search()
	if m.until == none {
		m.pursue()
	}
	t.Logf("%d states, %d steps without a fault", len(m.states), len(m.edges))
	for p := range properties {
		f, broken := m.broken[p]
		if steps, ok := want[p]; ok != broken || steps != f.steps {
			t.Errorf("%v: breaks after %d steps, want %d (0: never)", p, f.steps, steps)
			for _, step := range m.trace(f.at) {
				t.Log("    ", step)
			}
		}
	}
}

// TestModelAsAssumed: while the assumption holds, nothing breaks.
func TestModelAsAssumed(t *testing.T) {
	m := &model{claims: 1, controllers: 2, gates: allGates(), options: options{mixedCaches: true}}
	m.check(t, nil)
	m = &model{claims: 2, controllers: 1, faults: noLimit, gates: allGates(), options: assumed()}
	m.check(t, nil)
	if !testing.Short() {
		m = &model{claims: 2, controllers: 2, faults: 1, gates: allGates(), options: options{slicesVanish: true}}
		m.check(t, nil)
	}
}

// TestModelAtWorst: without it, a VM and a container still never have the function at once, and the GPU isn't lost. What
// is left to break is in breaksAtWorst.
func TestModelAtWorst(t *testing.T) {
	m := &model{claims: 1, controllers: 1, faults: 2, gates: allGates(), options: worst()}
	m.check(t, breaksAtWorst())
	if !testing.Short() {
		scheduler := options{schedulerLags: true, tolerated: true, forces: true}
		m = &model{claims: 1, controllers: 1, faults: noLimit, gates: allGates(), options: worst()}
		m.check(t, breaksAtWorst())
		m = &model{claims: 2, controllers: 1, faults: 1, gates: allGates(), options: scheduler}
		m.check(t, breaksAtWorst())
		m = &model{claims: 1, controllers: 2, faults: 1, gates: allGates(), options: scheduler}
		m.check(t, breaksAtWorst())
	}
}

// TestModelStatesFitInAWord: a state is what its key says.
func TestModelStatesFitInAWord(t *testing.T) {
	m := &model{claims: 2, controllers: 2, faults: 0, gates: allGates(), until: overbooked, options: options{schedulerLags: true}}
	m.search()
	for _, b := range m.states {
		if s := b.unpack(); s.pack() != b {
			t.Fatalf("%x: %+v is %x", b, s, s.pack())
		}
	}
}
