//go:build lab

// Package crash_test kills the plugin with SIGKILL at every point of its work and checks what a new one makes of it.
package crash_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const uid = "0f8fad5b"

func TestMain(m *testing.M) { victim.Main(m) }

// tally counts the points that were tried and the record states that kills left behind.
type tally struct {
	vfs []string // what the NIC imposes on its VFs before and after
	// between are the settings of the first VF that kills left behind; nil if nobody asks.
	between map[string]bool
	points  int
	states  map[journal.State]int
}

// step is from one point to the next that is tried. With -short it is one in so many: the double's own test of package
// prepare tries them all, and here, where each takes seconds, the kinds of claims take turns.
func step(short int) int {
	if testing.Short() {
		return short
	}
	return 1
}

// TestKillAtEveryPoint kills the plugin after every single piece of work of Prepare and of Unprepare, for each kind of
// claim. After Recover the claim is whole or gone.
func TestKillAtEveryPoint(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	sum := tally{states: map[journal.State]int{}, vfs: stage.VFs(t, stage.OpenPlain(t, stage.Config()))}
	for i, kind := range []struct {
		name      string
		addresses []string
	}{
		{"a GPU", []string{topology.GPU0}},
		{"a GPU with audio", []string{topology.GPU1}},
		{"a VF", []string{topology.VF(topology.PF0, 0)}},
		{"a GPU and a VF", []string{topology.GPU0, topology.VF(topology.PF0, 1)}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for _, act := range []victim.Act{victim.Prepare, victim.Unprepare} {
				sum.killAll(t, victim.Orders{Act: act, UID: uid, Addresses: kind.addresses, At: 1 + i%step(4)}, step(4))
			}
		})
	}
	sum.report(t)
}

// TestKillAmidRecovery cuts a Prepare and an Unprepare off amid their steps, and then kills the plugin that recovers
// at every point, too.
func TestKillAmidRecovery(t *testing.T) {
	sum := tally{states: map[journal.State]int{}}
	for _, cut := range []victim.Orders{
		{Act: victim.Prepare, Phase: "bind", At: 2},
		{Act: victim.Unprepare, Phase: "reset", At: 1},
	} {
		t.Run(string(cut.Act), func(t *testing.T) {
			cut.UID, cut.Addresses = uid, []string{topology.GPU1}
			o := victim.Orders{Act: victim.Recover, UID: uid, Addresses: cut.Addresses}
			for at := 1; ; at += step(3) {
				before := stage.Bindings(t)
				setUp(t, cut)
				mustBeKilled(t, cut)
				o.At = at
				if killed := sum.tryPoint(t, o, before); !killed {
					break
				}
			}
		})
	}
	t.Logf("%d points tried; records in the states %v", sum.points, sum.states)
}

// killAll kills the act at one point after the other, from the orders' on, until it comes to its end.
func (s *tally) killAll(t *testing.T, o victim.Orders, step int) {
	t.Helper()
	begin, first := time.Now(), s.points
	for ; ; o.At += step {
		before := stage.Bindings(t)
		setUp(t, o)
		if killed := s.tryPoint(t, o, before); !killed {
			break
		}
	}
	t.Logf("%s killed at %d points in %.0fs", o.Act, s.points-first, time.Since(begin).Seconds())
}

// setUp brings the node to where the act begins.
func setUp(t *testing.T, o victim.Orders) {
	t.Helper()
	if o.Act != victim.Unprepare {
		return
	}
	req, err := o.Request(stage.Scan(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.OpenPlain(t, stage.Config()).Preparer.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// tryPoint runs the victim, recovers, and checks; false when the victim came to its end alive.
func (s *tally) tryPoint(t *testing.T, o victim.Orders, before map[string]plan.Binding) bool {
	t.Helper()
	fate, err := victim.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := stage.OpenPlain(t, stage.Config())
	where := fmt.Sprintf("%s killed at point %d", o.Act, o.At)
	if fate.Killed {
		s.points++
		s.note(t, n)
		if s.between != nil {
			s.between[stage.VFs(t, n)[0]] = true
		}
	}
	r, err := n.Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Quarantined) > 0 || len(r.Orphans) > 0 {
		t.Fatalf("%s: Recover = %+v, %v", where, r, err)
	}
	wholeOrGone(t, n, where, before)
	if _, err := n.Preparer.Unprepare(t.Context(), o.UID); err != nil {
		t.Fatalf("%s: Unprepare after Recover: %v", where, err)
	}
	stage.Unchanged(t, before)
	stage.Empty(t, n)
	if diff := cmp.Diff(s.vfs, stage.VFs(t, n)); diff != "" {
		t.Errorf("what the PF imposes (-before +after):\n%s", diff)
	}
	if t.Failed() {
		t.Fatal(where)
	}
	return fate.Killed
}

// note counts the state of the record that the victim left.
func (s *tally) note(t *testing.T, n *node.Node) {
	t.Helper()
	rec, err := n.Parts.Journal.Load(uid)
	if err != nil {
		t.Fatal(err)
	}
	state := journal.State("none")
	if rec != nil {
		state = rec.State
	}
	s.states[state]++
}

// report prints the tally and checks that no state of a record was missed.
func (s *tally) report(t *testing.T) {
	t.Helper()
	t.Logf("%d points tried; records in the states %v", s.points, s.states)
	for _, state := range []journal.State{"none", journal.Preparing, journal.Prepared, journal.Releasing, journal.Cleaned} {
		if s.states[state] == 0 {
			t.Errorf("no kill left a record in state %s", state)
		}
	}
}

// wholeOrGone checks the two ends that a claim may come to.
func wholeOrGone(t *testing.T, n *node.Node, where string, before map[string]plan.Binding) {
	t.Helper()
	rec, err := n.Parts.Journal.Load(uid)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	specs, err := n.Parts.Specs.Claims()
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if rec == nil {
		if len(specs) > 0 {
			t.Errorf("%s: no record, but the CDI specs %v", where, specs)
		}
		stage.Unchanged(t, before)
		if all := stage.HaveTypes(t); len(all) > 0 {
			t.Errorf("%s: no record, but %v are vGPUs", where, all)
		}
		return
	}
	if rec.State != journal.Prepared || !slices.Equal(specs, []string{uid}) {
		t.Errorf("%s: a record in state %s and the CDI specs %v", where, rec.State, specs)
	}
	now := stage.Bindings(t)
	for _, fn := range rec.Plan.Functions {
		if got := now[fn.Address.String()]; got != fn.Target {
			t.Errorf("%s: %s is bound %+v, want %+v", where, fn.Address, got, fn.Target)
		}
		if has := slices.Contains(stage.HaveTypes(t), fn.Address.String()); has != (len(fn.Settings) > 0) {
			t.Errorf("%s: %s is a vGPU: %t, want %t", where, fn.Address, has, !has)
		}
	}
}

// mustBeKilled runs a victim that must not come to its end.
func mustBeKilled(t *testing.T, o victim.Orders) {
	t.Helper()
	fate, err := victim.Run(t.Context(), o)
	if err != nil || !fate.Killed {
		t.Fatalf("%+v: %+v, %v; want it killed", o, fate, err)
	}
}
