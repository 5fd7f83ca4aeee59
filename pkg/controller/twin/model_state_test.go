package twin_test

// A state is small because versions of objects aren't counted: what a controller has read is the present version or not,
// and never becomes it again.

// Answers to our claim.
const (
	answerNone uint8 = iota
	answerWaiting
	answerReserved
	answerInUse
)

// What the scheduler sees of the rule on the twin: none, the one that stands, or one that is deleted meanwhile. Its
// view may lag behind, but moves forward.
const (
	seesNone uint8 = iota
	seesRule
	seesDeleted
)

// How far the plugin is with a claim. The passed ones are points a, b and c of the gate. From bound on the function is on VFIO, and the journal says so.
const (
	pluginFree        uint8 = iota
	passedReserved          // the controller has reserved the claim
	passedClaims            // no claim has the twin
	passedPods              // no pod has the twin
	bound                   // the function is on VFIO
	boundPassedClaims       // still no claim has the twin
	held                    // Prepare has answered: the VM has the function
	left                    // bound, and the plugin was killed before the answer
	ending                  // the VM is gone or was refused; reset and host driver come next
	quarantined             // the reset failed
)

// How far the other driver's kubelet is with one of its claims.
const (
	podNone     uint8 = iota
	podStarted        // the kubelet has read the claim
	podChecked        // the driver saw the function on its kernel driver, and has not answered (option)
	podPrepared       // the container has the function
)

// What a controller is doing.
const (
	idle         uint8 = iota
	listedRules        // a fresh list, claims come next
	listedClaims       // only where the order is wrong
	cachedRules
	cachedClaims
	acting
)

// claims is how many claims each side has at most.
const claims = 2

// state is one state of the model.
type state struct {
	our, answer uint8 // which claim has our device, 0 for none, and its answer
	their       uint8 // which claim has the twin
	ruleOurs    bool
	rule        rulePart // on the twin
	sees        uint8
	// What the slices say: the other driver publishes the twin; we publish our device, and it is fit for a host driver.
	publishedTwin, publishedOurs, publishedFit bool
	plugin, who                                uint8 // how far the plugin is, with which claim
	hadIt                                      bool  // a container had the function when Prepare began
	pods                                       [claims]uint8
	faults                                     uint8 // how many are left
	controllers                                [2]controller
}

// rulePart is the rule on the twin.
type rulePart struct {
	stands bool
	old    bool  // for Grace
	mark   uint8 // the claim it was last written for
	exact  bool  // and for its present allocation and version
}

// controller is one of the controllers: what it has read, and what it is about to write.
type controller struct {
	phase uint8
	// ruleOurs, rule, our, answer and their are what was read.
	ruleOurs           bool
	rule               rulePart
	our, answer, their uint8
	// Whether what was read is the object's present version.
	currentOurs, currentTwin, currentClaim bool
	plan, done                             uint8 // the plan's index, and how many of its actions are done
}

// onVFIO reports whether the function is on VFIO.
func (s *state) onVFIO() bool { return s.plugin >= bound }

// prepared reports whether a container has the function.
func (s *state) prepared() bool {
	return s.pods[0] == podPrepared || s.pods[1] == podPrepared
}

// fit is what our slice would say now.
func (s *state) fit() bool { return !s.onVFIO() }

// claimChanged is a new version of our claim.
func (s *state) claimChanged() {
	s.rule.exact = false
	for i := range s.controllers {
		s.controllers[i].currentClaim = false
		s.controllers[i].rule.exact = false
	}
}

// oursChanged is a new version of the rule on our device.
func (s *state) oursChanged(stands bool) {
	s.ruleOurs = stands
	for i := range s.controllers {
		s.controllers[i].currentOurs = false
	}
}

// twinChanged is a new version of the rule on the twin.
func (s *state) twinChanged(r rulePart) {
	if s.rule.stands && !r.stands && s.sees == seesRule {
		s.sees = seesDeleted
	}
	s.rule = r
	for i := range s.controllers {
		s.controllers[i].currentTwin = false
	}
}

// tidy makes states equal that differ only in what has no effect: which of two controllers is which, and what a
// controller or the scheduler knew.
func (s state) tidy() state {
	if s.our == 0 {
		s.answer = answerNone
	}
	if s.plugin == pluginFree {
		s.who = 0
	}
	if s.plugin == pluginFree || s.plugin >= bound {
		s.hadIt = false
	}
	if s.pods[1] > s.pods[0] || s.pods[1] == s.pods[0] && s.their == 2 {
		s.pods[0], s.pods[1] = s.pods[1], s.pods[0]
		s.their = (3 - s.their) % 3
	}
	if a, b := &s.controllers[0], &s.controllers[1]; b.pack() < a.pack() {
		*a, *b = *b, *a
	}
	return s
}
