package prepare_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// wantRecovered has a new instance recover, with nothing left to do, and the active partitions those of the journal.
func (w *world) wantRecovered() {
	w.t.Helper()
	if r, err := w.plugin(nil).Recover(w.t.Context()); err != nil || len(r.Unfinished)+len(r.Quarantined) > 0 {
		w.t.Errorf("Recover = %+v, %v; want everything finished or undone", r, err)
	}
	w.wantPartitionsOfRecords("recovered")
}

// TestFabricManagerRestartsBeforeTheCheck: it starts again after it has activated the partition, and before the plugin reads the list.
// Prepare must not take the partition for active. Afterwards the claim can be prepared.
func TestFabricManagerRestartsBeforeTheCheck(t *testing.T) {
	for name, c := range map[string]struct {
		resume bool
		told   []int // what it is told after a restart with resume
	}{
		"it initializes the fabric":            {},
		"it resumes, told that none is active": {true, nil},
		"it resumes, told that this one is":    {true, []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.corner()
			req, before := w.request(uid, w.partition("gpu-x2-0000-86-87")...), w.bindings()
			w.fm.Add(fabrictest.Fault{Call: fabric.CallActivate, Times: 1, Then: func() { w.fm.Restart(c.resume) }})
			if rec, err := w.plugin(nil).Prepare(t.Context(), req); err == nil {
				t.Errorf("Prepare = %+v; want an error, since the restart has ended the partition", rec)
			}
			if c.resume {
				if err := w.fm.SetActivated(t.Context(), c.told); err != nil {
					t.Fatal(err)
				}
			}
			w.wantRecovered()
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil {
				t.Errorf("recovered: record %+v (want nil), bindings (-want as before +got):\n%s", w.record(uid), diff)
			}
			w.mustPrepare(req)
			w.wantRecovered()
		})
	}
}

// TestFabricManagerThatHangs until the call's deadline. If it has activated the partition by then, the list says so.
func TestFabricManagerThatHangs(t *testing.T) {
	for name, active := range map[string]bool{"with nothing done": false, "with the partition active": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.corner()
			req, before := w.request(uid, w.partition("gpu-x2-0000-86-87")...), w.bindings()
			ctx, end := context.WithCancelCause(t.Context())
			w.fm.Add(fabrictest.Fault{Call: fabric.CallActivate, Hangs: true, Late: active, Then: func() { end(errors.New("time is up")) }})
			if _, err := w.plugin(nil).Prepare(ctx, req); (err == nil) != active {
				t.Errorf("Prepare = %v; want it prepared: %t", err, active)
			}
			w.wantRecovered()
			if diff := cmp.Diff(before, w.bindings()); (diff == "") == active || (w.record(uid) != nil) != active {
				t.Errorf("record %+v, bindings (-want as before +got):\n%s", w.record(uid), diff)
			}
		})
	}
}

// lost prepares a claim with a partition of two GPUs, and has Fabric Manager start without it.
func lost(t *testing.T) (*world, []pci.Address) {
	t.Helper()
	w := newWorld(t)
	w.corner()
	gpus := w.partition("gpu-x2-0000-86-87")
	w.mustPrepare(w.request(uid, gpus...))
	w.fm.Restart(false)
	return w, gpus
}

// TestFirstSandboxGetsItsPartition: Fabric Manager has started again since Prepare. The GPUs are reset, and then joined again. If that
// can't be, no VM starts.
func TestFirstSandboxGetsItsPartition(t *testing.T) {
	for name, c := range map[string]struct {
		fault *fabrictest.Fault
		code  rule.Code // empty: the sandbox gets them
	}{
		"it answers":           {nil, ""},
		"it is away":           {&fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid}, rule.FabricNotReady},
		"links never train":    {&fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError}, rule.PartitionNotActivated},
		"success that is none": {&fabrictest.Fault{Call: fabric.CallActivate, Lost: true}, rule.NotPrepared},
	} {
		t.Run(name, func(t *testing.T) {
			w, gpus := lost(t)
			if c.fault != nil {
				w.fm.Add(*c.fault)
			}
			mark := len(w.events)
			err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "first"})
			if got := rule.Classify(err); got != c.code {
				t.Errorf("HandOver = %v (%s), want %q", err, got, c.code)
			}
			if rec := w.record(uid); rec.State != journal.Prepared || (rec.Sandbox != nil) != (c.code == "") {
				t.Errorf("record %s with sandbox %+v, want it handed over: %t", rec.State, rec.Sandbox, c.code == "")
			}
			if c.code != "" {
				w.fm.Repair()
				w.mustHandOver("first")
			}
			w.wantPartitionsOfRecords("handed over")
			wantResetsFirst(t, w.executed(mark), gpus)
			w.mustHandOver("first")
			if changes := w.fm.Changes(); changes[len(changes)-1] != "activate 3" {
				t.Errorf("changes %v, want no other one after the activation", changes)
			}
		})
	}
}

// wantResetsFirst checks that all GPUs were reset before their partition was activated.
func wantResetsFirst(t *testing.T, steps []key, gpus []pci.Address) {
	t.Helper()
	on := slices.IndexFunc(steps, func(k key) bool { return k.op == plan.SetValue && k.value == "3 (modules 1, 3)" })
	for _, gpu := range gpus {
		reset := slices.IndexFunc(steps, func(k key) bool { return k.op == plan.Reset && k.address == gpu })
		if reset < 0 || on < reset {
			t.Errorf("steps %v, want a reset of %s before the activation", steps, gpu)
		}
	}
}

// TestPartitionIsMadeAgain if no process has the GPUs. The VM that has them must be restarted, and nothing changes below it.
func TestPartitionIsMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		sandbox string
		held    bool
	}{
		"no sandbox":            {},
		"the sandbox ended":     {"first", false},
		"a VM has one":          {"first", true},
		"a process of the node": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.corner()
			gpus := w.partition("gpu-x2-0000-86-87")
			w.mustPrepare(w.request(uid, gpus...))
			if c.sandbox != "" {
				w.mustHandOver(c.sandbox)
			}
			if err := w.plugin(nil).Reactivate(t.Context(), uid); err != nil || len(w.fm.Changes()) != 1 || len(w.k.Resets()) > 0 {
				t.Errorf("nothing is lost: %v, changes %v, resets %v", err, w.fm.Changes(), w.k.Resets())
			}
			w.fm.Restart(false)
			if c.held {
				h := w.hold(gpus[1])
				err := w.plugin(nil).Reactivate(t.Context(), uid)
				if says(t, err, "delete the pod", "qemu"); rule.Classify(err) != rule.PartitionNotActivated || len(w.fm.Active()) > 0 || len(w.k.Resets()) > 0 {
					t.Errorf("%s, active %v, resets %v; want %s, and nothing done", rule.Classify(err), w.fm.Active(), w.k.Resets(), rule.PartitionNotActivated)
				}
				if failed, ok := errors.AsType[*bind.NotActivatedError](err); !ok || failed.Device != "gpu-x2-0000-86-87" {
					t.Errorf("%+v, want the partition's name", failed)
				}
				h.Release()
			}
			mark := len(w.events)
			if err := w.plugin(nil).Reactivate(t.Context(), uid); err != nil {
				t.Error(err)
			}
			w.wantPartitionsOfRecords("made again")
			if c.sandbox == "" {
				wantResetsFirst(t, w.executed(mark), gpus)
			} else if n := len(w.k.Resets()); n != 0 {
				t.Errorf("%d resets, want them when the next sandbox gets the GPUs", n)
			} else {
				mark = len(w.events)
			}
			w.mustHandOver("next")
			wantResetsFirst(t, w.executed(mark), gpus)
			w.wantPartitionsOfRecords("handed over")
			w.mustUnprepare(uid)
		})
	}
	as[*prepare.NotPreparedError](t, newWorld(t).plugin(nil).Reactivate(t.Context(), uid))
}

// TestRecoveryThatQuarantines: the recovery resets the GPUs of a prepared claim whose partition is lost, and one reset does not work. The
// claim is quarantined then, and not kept.
func TestRecoveryThatQuarantines(t *testing.T) {
	w, gpus := lost(t)
	w.k.OnReset(gpus[1], func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, unix.ENOTTY })
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Kept)+len(r.Unfinished) > 0 || len(r.Quarantined) != 1 || r.Quarantined[0].State != journal.Quarantined {
		t.Errorf("Recover = %+v, %v; want the claim quarantined, and nothing kept or unfinished", r, err)
	}
	quarantines := 0
	for _, e := range w.told(uid) {
		if e.Type == ledger.Quarantine {
			quarantines++
		}
	}
	if rec := w.record(uid); rec.State != journal.Quarantined || quarantines != 1 || w.hasSpec(uid) {
		t.Errorf("record %+v, %d quarantines in the ledger, CDI spec %t; want it quarantined once, without a spec", rec, quarantines, w.hasSpec(uid))
	}
}

// TestForeignPartitionIsNotTouched: another program has joined one of the GPUs with others since. They are not reset below that.
func TestForeignPartitionIsNotTouched(t *testing.T) {
	w, _ := lost(t)
	if err := w.fm.Activate(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "first"})
	says(t, err, "9 (modules 3)", "another program")
	if rec := w.record(uid); rec.State != journal.Prepared || rec.Sandbox != nil || len(w.k.Resets()) > 0 {
		t.Errorf("record %+v, resets %v; want it prepared, and nothing done", rec, w.k.Resets())
	}
}

// TestCrashWhileAPartitionIsMadeAgain cuts the power at every effect. The next sandbox has the partition, whatever was done before.
func TestCrashWhileAPartitionIsMadeAgain(t *testing.T) {
	acts := map[string]func(*plugin, context.Context) error{
		"for a sandbox": func(p *plugin, ctx context.Context) error {
			return p.HandOver(ctx, uid, journal.Sandbox{ID: "first"})
		},
		"by itself": func(p *plugin, ctx context.Context) error { return p.Reactivate(ctx, uid) },
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			w, _ := lost(t)
			count := &power{}
			if err := act(w.plugin(count), t.Context()); err != nil || count.count < 4 {
				t.Fatalf("%v after %d effects", err, count.count)
			}
			for at := 1; at <= count.count; at++ {
				for _, after := range []bool{false, true} {
					w, _ := lost(t)
					_ = act(w.plugin(&power{at: at, after: after}), t.Context()) // nobody sees the error of a dead process
					w.wantRecovered()
					w.mustHandOver("first")
					w.wantPartitionsOfRecords("handed over")
					w.mustUnprepare(uid)
				}
			}
		})
	}
}
