package twin

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// answers has the answers to the claims of our device.
type answers struct {
	// refusals set conditions that keep a pod from the GPU; reservations hand it over.
	refusals     []Action
	reservations []Action
	// wait is the time after which an answer changes even if nothing else does; zero if none does.
	wait Millis
}

// answers returns the answers to all claims that have our device and none yet.
func (g *GPU) answers(now Millis) answers {
	var a answers
	for i := range g.OurClaims {
		if c := &g.OurClaims[i]; !c.answered() {
			a.add(g, c, now)
		}
	}
	return a
}

// answered reports whether the claim has an answer for this allocation.
func (c *Claim) answered() bool {
	for _, cond := range c.Conditions {
		if (cond.Type == v1alpha1.ConditionTwinReserved || cond.Type == v1alpha1.ConditionTwinInUse) && cond.True && cond.At >= c.AllocatedAt {
			return true
		}
	}
	return false
}

// add adds the answer to one claim.
func (a *answers) add(g *GPU, c *Claim, now Millis) {
	switch {
	case len(g.TwinClaims) > 0:
		a.refuse(g, c, now, rule.TwinAllocated, fmt.Sprintf("another claim has GPU %s through driver %s", g.PCI, g.SharedWith))
	case !g.published():
		a.unpublished(g, c, now)
	default:
		a.reserve(g, c, now)
	}
}

// refuse sends the pod elsewhere, once a rule keeps the scheduler from choosing the same device again.
func (a *answers) refuse(g *GPU, c *Claim, now Millis, reason rule.Code, message string) {
	if g.Ours != nil && g.rule(g.Ours.Device) == nil {
		return // the rule comes first; its creation leads to the next decision
	}
	a.refusals = append(a.refusals, SetCondition{
		Claim: *c, AllDevices: true, Type: v1alpha1.ConditionTwinInUse, True: true, Reason: reason, Message: message, At: max(now, c.AllocatedAt),
	})
}

// unpublished waits for the other driver to publish the GPU: without its devices nothing proves that no claim has one.
func (a *answers) unpublished(g *GPU, c *Claim, now Millis) {
	message := fmt.Sprintf("driver %s does not publish GPU %s, so it may be in use: check that the driver runs on the node", g.SharedWith, g.PCI)
	if left := c.AllocatedAt + PublishWait - now; left > 0 {
		a.waitFor(left)
		a.explain(c, now, rule.TwinNotPublished, message)
		return
	}
	a.refuse(g, c, now, rule.TwinNotPublished, message)
}

// explain writes why a claim waits, once.
func (a *answers) explain(c *Claim, now Millis, reason rule.Code, message string) {
	for _, cond := range c.Conditions {
		if cond.Type == v1alpha1.ConditionTwinReserved && cond.Reason == string(reason) && cond.At >= c.AllocatedAt {
			return
		}
	}
	a.refusals = append(a.refusals, SetCondition{Claim: *c, Type: v1alpha1.ConditionTwinReserved, Reason: reason, Message: message, At: max(now, c.AllocatedAt)})
}

// reserve hands the GPU over once the rules on all twins have been in force for [Grace]. Rules that were last written
// for another claim, or for an earlier allocation of this one, are written again first: a controller that lost its lease
// may be about to delete them, because it saw no claim.
func (a *answers) reserve(g *GPU, c *Claim, now Millis) {
	var touches []Action
	for _, t := range g.Twins {
		r := g.rule(t)
		if r == nil {
			return
		}
		if left := r.Since + Grace - now; left > 0 {
			a.waitFor(left)
			return
		}
		if r.Mark != c.Mark() {
			touches = append(touches, TouchRule{Rule: *r, TwinOf: g.ourDevice(), Has: v1alpha1.TwinOurs, Mark: c.Mark()})
		}
	}
	a.reservations = append(append(a.reservations, touches...), SetCondition{
		Claim: *c, Type: v1alpha1.ConditionTwinReserved, True: true, Reason: rule.TwinFree,
		Message: fmt.Sprintf("no claim has GPU %s through driver %s, and none can get it", g.PCI, g.SharedWith), At: max(now, c.AllocatedAt),
	})
}

// waitFor notes that an answer changes after left.
func (a *answers) waitFor(left Millis) {
	if a.wait == 0 || left < a.wait {
		a.wait = left
	}
}

// unpublishedFor reports whether a claim of ours without an answer has waited in vain for the other driver to publish
// the GPU.
func (g *GPU) unpublishedFor(now Millis) bool {
	if g.published() {
		return false
	}
	for i := range g.OurClaims {
		if c := &g.OurClaims[i]; !c.answered() && now >= c.AllocatedAt+PublishWait {
			return true
		}
	}
	return false
}
