package stage

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// Decision is what to do about stages now.
type Decision struct {
	// Actions are independent of each other.
	Actions []Action
	// Unsure are the nodes with more actions that must not be based on a cache. To get them, list the pods and claims of
	// stages, then the slices of these nodes, and decide again.
	Unsure []string
	// RequeueAfter is the time after which the decision changes even if the cluster does not; zero if only a change in the
	// cluster changes it.
	RequeueAfter Millis
}

// Action is [Create] or [Delete]. A repetition is refused or changes nothing, and a crash in the middle leaves a state from
// which Decide goes on.
type Action interface{ Node() string }

// Create creates the claim of a device's stage, and then its pod. It is an error if one of them exists: another controller was
// faster.
type Create struct{ Waiting }

// Node returns the device's node.
func (c Create) Node() string { return c.Device.Node }

// Delete deletes the pod of a stage, and its claim, with UID and resource version as preconditions. The API server keeps a
// claim while a pod uses it.
type Delete struct {
	*Stage
	Why Reason
	// Took is the time from the pod's creation to the end of its container, if HasTime is true.
	Took    Millis
	HasTime bool
}

// Node returns the device's node.
func (d Delete) Node() string { return d.Device.Node() }

// Reason says why a stage is deleted, for log and metrics.
type Reason string

// Reasons of [Delete].
const (
	// Decided: the plugin decided on the result.
	Decided Reason = "decided"
	// Undecided: the slice showed no decision in time. No plugin decided, or the plugin decided that the device needs another
	// stage, because this one was interrupted: the slice does not show that.
	Undecided Reason = "undecided"
	// Overdue: the pod got no node, or did not end in time.
	Overdue Reason = "overdue"
	// Needless: the device does not wait for a stage, or can't get one.
	Needless Reason = "needless"
	// Incomplete: the claim or the pod is missing.
	Incomplete Reason = "incomplete"
)

// Preconditions are what an object must still be for its deletion.
type Preconditions struct {
	Name            string
	UID             types.UID
	ResourceVersion string
}

// Objects returns the pod and the claim to delete. Each is nil if it does not exist or is being deleted already.
func (d Delete) Objects() (pod, claim *Preconditions) {
	if p := d.Pod; p != nil && p.Object.DeletionTimestamp == nil {
		pod = &Preconditions{p.Object.Name, p.Object.UID, p.Object.ResourceVersion}
	}
	if c := d.Claim; c != nil && c.Object.DeletionTimestamp == nil {
		claim = &Preconditions{c.Object.Name, c.Object.UID, c.Object.ResourceVersion}
	}
	return pod, claim
}

// decider has what one decision is based on.
type decider struct {
	view    *View
	memory  *Memory
	now     Millis
	stages  map[string]*Stage
	waiting []Waiting
	pools   map[poolKey]*cluster.Pool
	claims  occupants
	again   Millis
}

// Decide returns what to do about stages. The caller decides after each change, and after RequeueAfter.
func Decide(v *View, m *Memory, now Millis) Decision {
	d := newDecider(v, m, now)
	var decision Decision
	for _, a := range append(d.deletions(), d.creations()...) {
		if !v.Fresh[a.Node()] {
			decision.Unsure = append(decision.Unsure, a.Node())
			continue
		}
		if c, ok := a.(Create); ok {
			// Record the turn now, so that a device whose stage can't be created goes to the end of the line, too.
			m.hadTurn(c.ID, now)
		}
		decision.Actions = append(decision.Actions, a)
	}
	slices.Sort(decision.Unsure)
	decision.Unsure, decision.RequeueAfter = slices.Compact(decision.Unsure), d.again
	m.sweep(now)
	return decision
}

func newDecider(v *View, m *Memory, now Millis) *decider {
	pools := v.pools()
	return &decider{
		view: v, memory: m, now: now, stages: v.stages(), waiting: waiting(pools), pools: pools,
		claims: occupants{cluster: v.Cluster, pools: pools, withheld: map[*cluster.Pool]map[*cluster.Device][]string{}},
	}
}

// deletions returns the stages that are over or not needed.
func (d *decider) deletions() []Action {
	var actions []Action
	for _, name := range slices.Sorted(maps.Keys(d.stages)) {
		s := d.stages[name]
		if why := d.over(s); why != "" {
			a := Delete{Stage: s, Why: why}
			if s.Pod != nil && s.Pod.Ended() {
				a.Took, a.HasTime = s.took()
			}
			actions = append(actions, a)
		}
	}
	return actions
}

// over returns why a stage is to be deleted; empty if it is not.
func (d *decider) over(s *Stage) Reason {
	switch {
	case s.isDeleted():
		return ""
	case s.Pod == nil:
		return Incomplete
	// Before the check of the claim, because an ended pod still has the result when its claim is gone.
	case s.Pod.Ended():
		return d.ended(s)
	case s.Claim == nil:
		return Incomplete
	case d.isNeedless(s):
		return Needless
	case d.isOverdue(s):
		return Overdue
	}
	return ""
}

// ended returns why a stage whose pod ended is to be deleted. The pod stays until the slice shows that the plugin has decided,
// because the plugin reads the result from it. A pod that the node evicted, or ended in its shutdown, stays for DecideLimit: the
// slice does not show that the plugin counted the interruption. A stage that began before that would hide it, and the plugin
// would never quarantine a device whose stages are interrupted again and again.
func (d *decider) ended(s *Stage) Reason {
	if device := d.published(s.Device); device != nil && isDecided(device) {
		return Decided
	}
	if d.isPast(d.memory.since("ended/"+string(s.Pod.Object.UID), d.now) + DecideLimit) {
		return Undecided
	}
	return ""
}

// isNeedless reports whether a stage that has not started can never do so: Prepare refuses it, or the scheduler has no device
// for it. A device that is not published may come back, for example if its plugin is only away for a while.
func (d *decider) isNeedless(s *Stage) bool {
	device := d.published(s.Device)
	if device == nil {
		return false
	}
	if !s.isScheduled() {
		profile, waits := waitsOnly(device)
		return !waits || profile != s.Profile || !d.isCurrent(s) || !d.claims.isFree(device, s.Claim)
	}
	// Once a container has started, the sanitizer may be writing to the device, so the stage runs to its end.
	return isDecided(device) && !s.hasStarted()
}

// isCurrent reports whether the pod runs what its profile says. The plugin trusts the result of no other pod.
func (d *decider) isCurrent(s *Stage) bool {
	profile, ok := d.view.Sanitizers.Profile(s.Profile)
	return ok && slices.ContainsFunc(s.Pod.Object.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == container && c.Image == profile.Image && slices.Equal(c.Command, profile.Command) && slices.Equal(c.Args, profile.Args)
	})
}

// isOverdue reports whether the pod got no node, or did not end, for too long.
func (d *decider) isOverdue(s *Stage) bool {
	uid := string(s.Pod.Object.UID)
	if !s.isScheduled() {
		return d.isPast(d.memory.since("pending/"+uid, d.now) + PendingLimit)
	}
	return d.isPast(d.memory.since("scheduled/"+uid, d.now) + s.limit() + LostLimit)
}

// isPast reports whether a time has come, and asks for a decision at that time if it has not.
func (d *decider) isPast(at Millis) bool {
	left := at - d.now
	if left > 0 && (d.again == 0 || left < d.again) {
		d.again = left
	}
	return left <= 0
}

// creations returns the stages of devices whose turn it is.
func (d *decider) creations() []Action {
	var actions []Action
	running, taken := d.running(), d.taken()
	for _, w := range inTurn(d.waiting, func(id cluster.ID) Millis { return d.memory.turn(id, d.now) }) {
		profile, ok := d.view.Sanitizers.Profile(w.Profile)
		// isPast is asked last, because it requests another decision: only a device that is otherwise ready needs one.
		if !ok || running[w.Profile] >= profile.MaxParallel || !d.isReady(w, taken) || !d.isPast(d.memory.pauses[w.Profile].until) {
			continue
		}
		running[w.Profile]++
		take(taken, w.Device)
		actions = append(actions, Create{w})
	}
	return actions
}

// isReady reports whether a device that waits can have a stage now.
func (d *decider) isReady(w Waiting, taken map[cluster.Place]bool) bool {
	return d.stages[Name(w.ID)] == nil && len(w.Places) > 0 &&
		!slices.ContainsFunc(w.Places, func(p cluster.Place) bool { return taken[p] }) && d.claims.isFree(w.Device, nil)
}

// running returns how many stages of each profile run.
func (d *decider) running() map[string]int {
	count := map[string]int{}
	for _, s := range d.stages {
		if s.Active() && !d.isStuck(s) {
			count[s.Profile]++
		}
	}
	return count
}

// isStuck reports whether the pod was deleted long ago, and its node does not say that it ended.
func (d *decider) isStuck(s *Stage) bool {
	return s.isDeleted() && d.isPast(d.memory.since("deleted/"+string(s.Pod.Object.UID), d.now)+StuckLimit)
}

// taken returns the functions of devices that have a stage: two published devices can have a function in common, such as a
// GPU and its pair.
func (d *decider) taken() map[cluster.Place]bool {
	taken := map[cluster.Place]bool{}
	for _, s := range d.stages {
		if device := d.view.Cluster.Device(s.Device); device != nil {
			take(taken, device)
		}
	}
	return taken
}

func take(taken map[cluster.Place]bool, d *cluster.Device) {
	for _, p := range d.Places {
		taken[p] = true
	}
}

// Count is how many devices of a profile are in a state.
type Count struct{ Waiting, Running int }

// Counts returns by profile how many devices wait for a stage, and could have one, and how many stages run.
func (v *View) Counts() map[string]Count {
	// With an empty memory nothing is past its limit, so a stuck stage counts as running.
	d := newDecider(v, &Memory{}, 0)
	counts := map[string]Count{}
	for _, p := range v.Sanitizers.Profiles {
		counts[p.Name] = Count{}
	}
	for _, w := range d.waiting {
		if c := counts[w.Profile]; d.stages[Name(w.ID)] == nil && d.claims.isFree(w.Device, nil) {
			c.Waiting++
			counts[w.Profile] = c
		}
	}
	for profile, n := range d.running() {
		c := counts[profile]
		c.Running = n
		counts[profile] = c
	}
	return counts
}
