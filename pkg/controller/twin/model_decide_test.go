package twin_test

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// verb is what an action of a plan does.
type verb uint8

const (
	createOurs verb = iota
	createTwin
	touchTwin
	deleteOurs
	deleteTwin
	setWaiting
	setReserved
	setInUse
)

var names = [...]string{
	"controller: create the rule on our device", "controller: create the rule on the twin", "controller: touch the rule on the twin",
	"controller: delete the rule on our device", "controller: delete the rule on the twin",
	"controller: our claim waits", "controller: our claim is reserved", "controller: our claim is refused",
}

// act is an action in the model's terms.
type act struct {
	verb  verb
	claim uint8 // of a condition, or of a rule's mark
}

// view is what a controller decides on.
type view struct {
	ruleOurs                                   bool
	rule                                       rulePart
	our, answer, their                         uint8
	publishedTwin, publishedOurs, publishedFit bool
	fresh                                      bool
	late                                       bool // PublishWait has passed
}

// decided is a decision in the model's terms.
type decided struct {
	plan       uint8 // index in model.plans; the plan 0 is empty
	needsFresh bool
	asleep     bool // a claim waits and nothing wakes the controller
}

// view returns what the controller decides on: what it has read, and what the slices say now. The slices themselves
// lag behind the node by any time, so that a cache of them adds nothing.
func (c *controller) view(s *state, fresh bool) view {
	r := c.rule
	r.exact = r.exact && c.currentClaim
	return view{
		ruleOurs: c.ruleOurs, rule: r, our: c.our, answer: c.answer, their: c.their,
		publishedTwin: s.publishedTwin, publishedOurs: s.publishedOurs, publishedFit: s.publishedFit, fresh: fresh,
	}
}

// decide asks twin.Decide, once for each view.
func (m *model) decide(v view) decided {
	if d, ok := m.decisions[v]; ok {
		return d
	}
	edited := v
	if m.edit != nil {
		m.edit(&edited)
	}
	d := m.translate(&edited, twin.Decide(edited.gpu(), now))
	m.decisions[v] = d
	return d
}

// gpu is the view in Decide's terms.
func (v *view) gpu() *twin.GPU {
	g := free(func(g *twin.GPU) { g.Fresh = v.fresh })
	if !v.publishedOurs {
		g.Ours = nil
	} else if !v.publishedFit {
		g.Ours.KernelDriver = "vfio-pci"
	}
	if !v.publishedTwin {
		g.Twins = nil
	}
	if v.our != 0 {
		g.OurClaims = []twin.Claim{v.claim()}
	}
	if v.their != 0 {
		g.TwinClaims = []twin.Claim{container()}
	}
	if v.ruleOurs {
		g.Rules = append(g.Rules, taintRule(ourDevice(), container(), twin.Grace))
	}
	if v.rule.stands {
		g.Rules = append(g.Rules, v.rule.gpu())
	}
	return g
}

// claim is our claim in Decide's terms.
func (v *view) claim() twin.Claim {
	c := twin.Claim{UID: fmt.Sprint(v.our), ResourceVersion: "now", AllocatedAt: now}
	if v.late {
		c.AllocatedAt -= twin.PublishWait
	}
	switch v.answer {
	case answerWaiting:
		c.Conditions = []twin.Condition{{Type: v1alpha1.ConditionTwinReserved, Reason: string(rule.TwinNotPublished), At: now}}
	case answerReserved:
		c.Conditions = []twin.Condition{answered(v1alpha1.ConditionTwinReserved, string(rule.TwinFree))}
	case answerInUse:
		c.Conditions = []twin.Condition{answered(v1alpha1.ConditionTwinInUse, string(rule.TwinAllocated))}
	}
	return c
}

// gpu is the rule in Decide's terms.
func (r rulePart) gpu() twin.Rule {
	g := taintRule(twinDevice("gpu-0"), twin.Claim{UID: fmt.Sprint(r.mark), ResourceVersion: "before"}, 0)
	if r.exact {
		g.Mark = fmt.Sprint(r.mark) + "/now"
	}
	if r.old {
		g.Since = now - twin.Grace
	}
	return g
}

// translate returns a decision in the model's terms.
func (m *model) translate(v *view, d twin.Decision) decided {
	var plan []act
	for _, a := range d.Actions {
		if t := translateAction(v, a); m.drop == nil || !m.drop(t) {
			plan = append(plan, t)
		}
	}
	waits := v.our != 0 && (v.answer == answerNone || v.answer == answerWaiting)
	return decided{
		plan: m.planOf(plan), needsFresh: d.NeedsFresh,
		asleep: waits && len(d.Actions) == 0 && !d.NeedsFresh && d.RequeueAfter <= 0,
	}
}

func translateAction(v *view, a twin.Action) act {
	switch a := a.(type) {
	case twin.CreateRule:
		if a.Has == v1alpha1.TwinTheirs {
			return act{verb: createOurs}
		}
		return act{createTwin, v.our}
	case twin.TouchRule:
		return act{touchTwin, v.our}
	case twin.DeleteRule:
		if a.Rule.Target == ourDevice() {
			return act{verb: deleteOurs}
		}
		return act{verb: deleteTwin}
	case twin.SetCondition:
		switch {
		case a.Type == v1alpha1.ConditionTwinInUse:
			return act{setInUse, v.our}
		case a.True:
			return act{setReserved, v.our}
		default:
			return act{setWaiting, v.our}
		}
	default:
		panic(fmt.Sprintf("action %T", a))
	}
}

// planOf returns the index of a plan.
func (m *model) planOf(plan []act) uint8 {
	key := fmt.Sprint(plan)
	if i, ok := m.planIndex[key]; ok {
		return i
	}
	i := uint8(len(m.plans))
	if i == maxPlans || len(plan) > maxActions {
		panic(fmt.Sprintf("plan %d, %v: a state has no room for it", i, plan))
	}
	m.plans, m.planIndex[key] = append(m.plans, plan), i
	return i
}
