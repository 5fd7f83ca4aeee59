package prepare_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// key is what a step does, wherever the function comes from.
type key struct {
	op      plan.Op
	address pci.Address
	value   string
}

func keyOf(s plan.Step) key {
	k := key{op: s.Operation, address: s.Address, value: s.Value}
	if s.Operation == plan.Probe {
		k.value = s.DriverAfter
	}
	return k
}

// executed returns the steps that the world has seen since a mark, and that worked.
func (w *world) executed(since int) []key {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []key
	for _, e := range w.events[since:] {
		if e.Step != nil && e.Err == nil {
			keys = append(keys, keyOf(*e.Step))
		}
	}
	return keys
}

// phased are the keys of each phase's steps. Within a phase, groups and devices go side by side.
type phased [][]key

func phasedOf(phases []plan.Phase, steps func([]plan.Phase) []plan.Step) phased {
	var all phased
	for i := range phases {
		before := steps(phases[:i])
		var keys []key
		for _, s := range steps(phases[:i+1])[len(before):] {
			keys = append(keys, keyOf(s))
		}
		all = append(all, keys)
	}
	return all
}

// wantAll checks that exactly the planned steps were executed, phase by phase, those of each function in the planned order.
func (p phased) wantAll(t *testing.T, got []key) {
	t.Helper()
	for _, phase := range p {
		n := min(len(phase), len(got))
		if diff := cmp.Diff(byFunction(phase), byFunction(got[:n]), cmp.AllowUnexported(key{})); diff != "" {
			t.Errorf("steps of a phase (-want as planned +got):\n%s", diff)
			return
		}
		got = got[n:]
	}
	if len(got) > 0 {
		t.Errorf("executed, and not planned: %v, want none", got)
	}
}

func byFunction(keys []key) map[pci.Address][]key {
	all := map[pci.Address][]key{}
	for _, k := range keys {
		all[k.address] = append(all[k.address], k)
	}
	return all
}

// wantSome checks that what was executed is a part of what is planned, in the order of the phases: the rest was done before.
func (p phased) wantSome(t *testing.T, where string, got []key) {
	t.Helper()
	at := 0
	for _, k := range got {
		for at < len(p) && !slices.Contains(p[at], k) {
			at++
		}
		if at == len(p) {
			t.Errorf("%s: executed %v, want a step that is planned there; planned %v, executed %v", where, k, p, got)
			return
		}
	}
}

// TestPlannedStepsAreExecuted compares the steps that a dry run prints with those that are carried out.
func TestPlannedStepsAreExecuted(t *testing.T) {
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			w := newWorld(t)
			addrs := sc.build(w)
			mark := len(w.events)
			rec := w.mustPrepare(w.request(uid, addrs...))
			preparation(rec).wantAll(t, w.executed(mark))
			var planned []key
			for _, s := range rec.Plan.Steps {
				planned = append(planned, keyOf(s))
			}
			if diff := cmp.Diff(byFunction(planned), byFunction(w.executed(mark)), cmp.AllowUnexported(key{})); diff != "" {
				t.Errorf("the record's steps (-want as planned +got):\n%s", diff)
			}

			w.mustHandOver("first")
			mark = len(w.events)
			w.mustHandOver("second")
			phasedOf(plan.Renewal(), func(phases []plan.Phase) []plan.Step {
				return rec.StepsFor(rec.BootID, phases)
			}).wantAll(t, w.executed(mark))

			mark, rec = len(w.events), w.record(uid)
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			ahead(rec, rec.BootID, false).wantAll(t, w.executed(mark))
		})
	}
}

// ahead returns what is planned for a record before a recovery, or for the Unprepare after it.
func ahead(rec *journal.Record, bootID string, recovery bool) phased {
	switch {
	case rec == nil:
		return nil
	case recovery && rec.State == journal.Prepared && rec.BootID == bootID:
		return preparation(rec)
	}
	return phasedOf(rec.Ahead(bootID), func(phases []plan.Phase) []plan.Step { return rec.StepsFor(bootID, phases) })
}

func preparation(rec *journal.Record) phased {
	return phasedOf(plan.Preparation(), func(phases []plan.Phase) []plan.Step { return rec.Plan.StepsFor(plan.AtOriginal, phases...) })
}
