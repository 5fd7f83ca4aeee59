//go:build lab

package crash_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// neighbor is the UID of a claim that must not notice what happens to the victim's.
const neighbor = "7d2f1c90"

// TestNeighborOfAKilledClaim prepares two claims at once, on two VFs of one PF, which share its lock, and kills one of
// the two plugins at every point. The other claim comes through, and Recover leaves it alone.
func TestNeighborOfAKilledClaim(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	sum := tally{states: map[journal.State]int{}}
	o := victim.Orders{Act: victim.Prepare, UID: uid, Addresses: []string{topology.VF(topology.PF0, 0)}}
	for killed := true; killed; {
		o.At += step(4)
		before := stage.Bindings(t)
		killed = besideNeighbor(t, &sum, o, before)
		stage.Unchanged(t, before)
		if t.Failed() {
			t.Fatalf("killed at point %d", o.At)
		}
	}
	t.Logf("%d points tried; records in the states %v", sum.points, sum.states)
}

// besideNeighbor is one point: both at once, the neighbor in this process.
func besideNeighbor(t *testing.T, sum *tally, o victim.Orders, before map[string]plan.Binding) bool {
	t.Helper()
	n := stage.Open(t, stage.Config())
	req := stage.Request(t, neighbor, topology.VF(topology.PF0, 1))
	prepared := make(chan error, 1)
	go func() {
		_, err := n.Preparer.Prepare(context.WithoutCancel(t.Context()), req)
		prepared <- err
	}()
	fate, err := victim.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-prepared; err != nil {
		t.Errorf("the neighbor: %v", err)
	}
	if fate.Killed {
		sum.points++
		sum.note(t, n)
	}
	with := stage.Bindings(t)
	with[o.Addresses[0]] = before[o.Addresses[0]]
	r, err := stage.OpenPlain(t, stage.Config()).Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Kept) == 0 {
		t.Errorf("Recover = %+v, %v; want the neighbor kept", r, err)
	}
	for _, id := range []string{uid, neighbor} {
		if _, err := n.Preparer.Unprepare(t.Context(), id); err != nil {
			t.Errorf("Unprepare %s: %v", id, err)
		}
		if id == uid {
			stage.Unchanged(t, with)
		}
	}
	return fate.Killed
}

// TestRivalOfAKilledClaim lets another claim ask for the function of a plugin that hangs amid its work and is then
// killed. The rival waits for the lock, which dies with its holder, and is refused with the name of the claim that
// still has the function, until that is unprepared.
func TestRivalOfAKilledClaim(t *testing.T) {
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	kill := hang(t, victim.Orders{Act: victim.Prepare, UID: uid, Addresses: []string{topology.GPU0}, Phase: "unbind", At: 1})
	req := stage.Request(t, neighbor, topology.GPU0)
	impatient, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := n.Preparer.Prepare(impatient, req)
	stage.Says(t, err, "lock", "held by another claim's work")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want the context's", err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := n.Preparer.Prepare(context.WithoutCancel(t.Context()), req)
		refused <- err
	}()
	kill()
	err = <-refused
	stage.Says(t, err, topology.GPU0, "is held by claim tenant-a/"+uid)
	var refusal *rule.RefusedError
	if !errors.As(err, &refusal) || !refusal.Has(rule.Held) {
		t.Errorf("the rival got %v, want %s", err, rule.Held)
	}
	settleBoth(t, n, req.UID)
	stage.Unchanged(t, before)
}

// settleBoth unprepares the victim's claim, and shows that the rival's can be had then.
func settleBoth(t *testing.T, n *node.Node, rival string) {
	t.Helper()
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, rival, topology.GPU0)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Preparer.Unprepare(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
}

// TestKillAtAnyMoment kills by the clock instead of by events: in the middle of system calls, of half-written files
// and of the kernel's own work.
func TestKillAtAnyMoment(t *testing.T) {
	sum := tally{states: map[journal.State]int{}}
	for _, act := range []victim.Act{victim.Prepare, victim.Unprepare} {
		o := victim.Orders{Act: act, UID: uid, Addresses: []string{topology.GPU0}}
		moments := 15 / step(3)
		whole := timeOf(t, o)
		for i := range moments {
			o.After = whole * time.Duration(i+1) / time.Duration(moments+1)
			before := stage.Bindings(t)
			setUp(t, o)
			sum.tryPoint(t, o, before)
		}
	}
	t.Logf("%d kills; records in the states %v", sum.points, sum.states)
}

// timeOf is how long the act takes from its first event on.
func timeOf(t *testing.T, o victim.Orders) time.Duration {
	t.Helper()
	before := stage.Bindings(t)
	setUp(t, o)
	fate, err := victim.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.OpenPlain(t, stage.Config()).Preparer.Unprepare(t.Context(), o.UID); err != nil {
		t.Fatal(err)
	}
	stage.Unchanged(t, before)
	return fate.Took
}

// hang starts a victim that stays at its moment with all its locks, and returns what kills it.
func hang(t *testing.T, o victim.Orders) (kill func()) {
	t.Helper()
	o.Hang = true
	cmd, err := victim.Command(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len(victim.Reached))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != victim.Reached {
		t.Fatalf("the victim says %q, %v; want %q", line, err, victim.Reached)
	}
	return func() {
		_ = cmd.Process.Kill() // it hangs and can't have ended
		_ = cmd.Wait()         // killed, as was asked for
	}
}
