package twin

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// Decide returns what to do about a GPU. The caller decides after each change of it, and after RequeueAfter.
//
// Writes that only keep claims away, or refuse them, come first and need no fresh list: at worst they are undone later. Writes
// that hand the GPU over, which are deletions and reservations, come once none of the former are left.
func Decide(g *GPU, now Millis) Decision {
	claims := g.answers(now)
	safe := append(g.missing(now), claims.refusals...)
	if len(safe) > 0 {
		return Decision{Actions: safe, RequeueAfter: claims.wait}
	}
	risky := append(g.obsolete(), claims.reservations...)
	if len(risky) > 0 && !g.Fresh {
		return Decision{NeedsFresh: true}
	}
	return Decision{Actions: risky, RequeueAfter: claims.wait}
}

// missing returns the rules that must be in force and aren't.
func (g *GPU) missing(now Millis) []Action {
	var actions []Action
	if g.Ours != nil && (len(g.TwinClaims) > 0 || g.unpublishedFor(now)) {
		actions = append(actions, g.enforce(g.Ours.Device, g.twinDevice(), v1alpha1.TwinTheirs, mark(g.TwinClaims))...)
	}
	if len(g.OurClaims) > 0 || g.Ours != nil && !g.Ours.fit() {
		for _, t := range g.Twins {
			actions = append(actions, g.enforce(t, g.ourDevice(), v1alpha1.TwinOurs, mark(g.OurClaims))...)
		}
	}
	return actions
}

// enforce returns the action that puts a device's rule in force, none if it is.
func (g *GPU) enforce(target, twinOf cluster.ID, has, mark string) []Action {
	if g.rule(target) != nil {
		return nil
	}
	i := slices.IndexFunc(g.Rules, func(r Rule) bool { return r.Target == target })
	if i < 0 {
		return []Action{CreateRule{Target: target, TwinOf: twinOf, Has: has, Mark: mark}}
	}
	// A rule's name follows from its device, so a damaged rule has to be repaired: a second one can't be created.
	return []Action{TouchRule{Rule: g.Rules[i], TwinOf: twinOf, Has: has, Mark: mark}}
}

// obsolete returns the deletions of rules whose reason is gone.
func (g *GPU) obsolete() []Action {
	var actions []Action
	for _, r := range g.Rules {
		if r.Target.Driver == g.SharedWith && g.twinsFree() || r.Target.Driver != g.SharedWith && g.oursFree() {
			actions = append(actions, DeleteRule{Rule: r})
		}
	}
	return actions
}

// twinsFree reports whether new claims may have the twins. If the plugin publishes no slice for the GPU, it has left the node.
// The GPU is then with the other driver if that driver publishes it.
func (g *GPU) twinsFree() bool {
	if len(g.OurClaims) > 0 {
		return false
	}
	if g.Ours == nil {
		return g.published()
	}
	return g.Ours.fit()
}

// oursFree reports whether new claims may have our device. While the other driver doesn't publish the GPU, a rule that
// sent claims away stays: they would only come back.
func (g *GPU) oursFree() bool {
	return len(g.TwinClaims) == 0 && (g.Ours == nil || g.published())
}

// ourDevice returns our device, the zero value if it isn't published.
func (g *GPU) ourDevice() cluster.ID {
	if g.Ours == nil {
		return cluster.ID{}
	}
	return g.Ours.Device
}

// twinDevice returns one of the twins, or the driver's name alone if none is published.
func (g *GPU) twinDevice() cluster.ID {
	if !g.published() {
		return cluster.ID{Driver: g.SharedWith}
	}
	return g.Twins[0]
}

// mark returns the mark of the first claim, "" without one.
func mark(claims []Claim) string {
	if len(claims) == 0 {
		return ""
	}
	return claims[0].Mark()
}
