package twin_test

import (
	"maps"
	"slices"
	"testing"
)

// breaks are the properties that break, each with the steps of the shortest way there.
type breaks map[property]int

// row is one thing that is switched off, and what it costs: nothing, if another layer protects the same.
type row struct {
	name   string
	mutate func(*model)
	// assumed is what breaks though the scheduler's view is bounded and nobody forces anything, with one controller;
	// race is the first to break with two; atWorst is what breaks without an assumption, beyond what always does.
	assumed, race, atWorst breaks
}

// breaksAtWorst is what breaks without an assumption, whatever is switched on: the scheduler gives the twin to a
// container after the promise to the VM, and the kubelet starts it between two points of the gate. The container loses the
// function before it ran.
func breaksAtWorst() breaks { return breaks{disturbed: 14, overbooked: 8} }

// beyondWorst adds what else breaks, or sooner.
func beyondWorst(more breaks) breaks {
	all := breaksAtWorst()
	maps.Copy(all, more)
	return all
}

// gate switches off points of the plugin's gate.
func gate(edit func(*gates)) func(*model) {
	return func(m *model) { edit(&m.gates) }
}

// reads changes what Decide gets.
func reads(edit func(*view)) func(*model) {
	return func(m *model) { m.edit = edit }
}

// never drops actions.
func never(v verb) func(*model) {
	return func(m *model) { m.drop = func(a act) bool { return a.verb == v } }
}

// ofDecide are the rules of Decide.
func ofDecide() []row {
	return []row{
		{name: "no rule on our device", mutate: func(m *model) {
			never(deleteOurs)(m)
			m.edit = func(v *view) { v.ruleOurs = true }
		}, assumed: breaks{kept: 1}, atWorst: breaks{kept: 1}},
		{name: "no rule on the twin", mutate: func(m *model) {
			never(deleteTwin)(m)
			m.edit = func(v *view) { v.rule = rulePart{stands: true, old: true, mark: v.our, exact: true} }
		}, assumed: breaks{disturbed: 11, overbooked: 5, offered: 10}, atWorst: breaks{disturbed: 11, overbooked: 5, offered: 10}},
		{name: "no Grace", mutate: reads(func(v *view) { v.rule.old = v.rule.stands }), assumed: breaks{disturbed: 13, overbooked: 7}, atWorst: breaks{disturbed: 13, overbooked: 7}},
		{name: "no touch", mutate: reads(func(v *view) { v.rule.mark, v.rule.exact = v.our, true }), race: breaks{overbooked: 15}},
		{name: "mark without version", mutate: reads(func(v *view) { v.rule.exact = v.rule.exact || v.rule.mark == v.our }), race: breaks{overbooked: 15}},
		{name: "reserve what a claim has", mutate: reads(func(v *view) {
			if v.our != 0 {
				v.their = 0
			}
		}), assumed: breaks{overbooked: 9}},
		{name: "never refuse", mutate: never(setInUse), assumed: breaks{kept: 2}, atWorst: breaks{kept: 2}},
		{name: "reserve what is not published", mutate: reads(func(v *view) { v.publishedTwin = true })},
		{name: "count no claim of what is not published", mutate: reads(unknown)},
		{name: "both", mutate: reads(func(v *view) {
			unknown(v)
			v.publishedTwin = true
		}), assumed: breaks{overbooked: 10}},
		{name: "delete the twin's rule though a claim is reserved", mutate: reads(func(v *view) {
			if v.answer == answerReserved {
				v.our = 0
			}
		}), assumed: breaks{disturbed: 19, overbooked: 13}},
		{name: "delete the twin's rule on VFIO", mutate: reads(func(v *view) { v.publishedFit = true }), atWorst: breaks{offered: 17}},
		{name: "never delete the rule on our device", mutate: never(deleteOurs), assumed: breaks{lost: 3}, atWorst: breaks{lost: 3}},
		{name: "never delete the rule on the twin", mutate: never(deleteTwin), assumed: breaks{lost: 3, noContainer: 4}, atWorst: breaks{lost: 3, noContainer: 4}},
	}
}

// unknown hides the claim of a device that isn't published.
func unknown(v *view) {
	if !v.publishedTwin {
		v.their = 0
	}
}

// ofCaller are the duties of Decide's caller.
func ofCaller() []row {
	return []row{
		{name: "a cache counts as fresh", mutate: func(m *model) { m.cacheIsFresh, m.mixedCaches = true, true }, assumed: breaks{overbooked: 9}, atWorst: breaks{disturbed: 13, overbooked: 7}},
		{name: "list claims, then rules", mutate: func(m *model) { m.claimsFirst = true }, assumed: breaks{overbooked: 13}},
		{name: "no preconditions", mutate: func(m *model) { m.noPreconditions = true }, race: breaks{overbooked: 15}},
	}
}

// ofPlugin are the points of the gate.
func ofPlugin() []row {
	return []row{
		{name: "a: not reserved", mutate: gate(func(g *gates) { g.reserved = false }), assumed: breaks{disturbed: 8, overbooked: 8}, atWorst: breaks{disturbed: 8, overbooked: 8}},
		{name: "b: no list of claims", mutate: gate(func(g *gates) { g.claims = false })},
		{name: "c: no list of pods", mutate: gate(func(g *gates) { g.pods = false }), atWorst: breaks{robbed: 15}},
		{name: "b and c", mutate: gate(func(g *gates) { g.claims, g.pods = false, false }), atWorst: breaks{robbed: 14}},
		{name: "d: no list of claims once bound", mutate: gate(func(g *gates) { g.boundClaims = false })},
		{name: "d: no list of pods once bound", mutate: gate(func(g *gates) { g.boundPods = false }), atWorst: breaks{twoConsumers: 17}},
		{name: "d", mutate: gate(func(g *gates) { g.boundClaims, g.boundPods = false, false }), atWorst: breaks{twoConsumers: 16}},
		{name: "b, before and once bound", mutate: gate(func(g *gates) { g.claims, g.boundClaims = false, false })},
		{name: "c, before and once bound", mutate: gate(func(g *gates) { g.pods, g.boundPods = false, false }), atWorst: breaks{twoConsumers: 17, robbed: 15}},
		{name: "no gate", mutate: gate(func(g *gates) { *g = gates{} }), assumed: breaks{twoConsumers: 10, disturbed: 8, robbed: 8, overbooked: 8}, atWorst: breaks{twoConsumers: 10, disturbed: 8, robbed: 8, overbooked: 8}},
		{name: "recover completes a claim without the gate", mutate: func(m *model) { m.recoverKeeps = true }, atWorst: breaks{twoConsumers: 16}},
	}
}

// ofOthers are what is assumed of others.
func ofOthers() []row {
	late := func(m *model) { m.vendorLate, m.tolerated = true, true }
	return []row{
		{name: "the scheduler's view is older than Grace", mutate: func(m *model) { m.schedulerLags = true }, assumed: breaks{disturbed: 14, overbooked: 8}},
		{name: "claims tolerate the rule", mutate: func(m *model) { m.tolerated = true }, assumed: breaks{disturbed: 15, overbooked: 9}},
		{name: "claims are deallocated by force", mutate: func(m *model) { m.forces = true }, assumed: breaks{disturbed: 16, overbooked: 21}},
		{name: "the other driver doesn't look where the function is", mutate: func(m *model) { m.vendorBlind = true }, atWorst: breaks{twoConsumers: 16}},
		{name: "the other driver answers late", mutate: late, assumed: breaks{disturbed: 16, overbooked: 9}, atWorst: breaks{twoConsumers: 18, disturbed: 15}},
		{name: "the other driver answers late; d: no list of claims once bound", mutate: func(m *model) {
			late(m)
			m.gates.boundClaims = false
		}, assumed: breaks{twoConsumers: 18, disturbed: 16, overbooked: 9}, atWorst: breaks{twoConsumers: 17, disturbed: 15}},
	}
}

// TestModelMutations switches off each rule of Decide, each duty of its caller, each point of the gate and each
// assumption, and says what breaks.
func TestModelMutations(t *testing.T) {
	for _, r := range slices.Concat(ofDecide(), ofCaller(), ofPlugin(), ofOthers()) {
		t.Run(r.name, func(t *testing.T) {
			m := &model{claims: 1, controllers: 1, faults: 1, gates: allGates(), options: options{slicesVanish: true}}
			r.mutate(m)
			m.check(t, r.assumed)
			m = &model{claims: 1, controllers: 1, faults: 1, gates: allGates(), options: options{schedulerLags: true, tolerated: true, forces: true}}
			r.mutate(m)
			m.check(t, beyondWorst(r.atWorst))
			if r.race != nil {
				m = &model{claims: 1, controllers: 2, gates: allGates(), until: overbooked}
				r.mutate(m)
				m.check(t, r.race)
			}
		})
	}
}
