package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var alice = ledger.Operator{UID: 0, Sudo: "alice"}

func (w *world) mustDrain(a pci.Address) *maintain.Draining {
	w.t.Helper()
	state, err := w.plugin(nil).Drain(w.t.Context(), journal.Drain{Address: a, Reason: "fan"}, alice)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func (w *world) mustUndrain(a pci.Address) {
	w.t.Helper()
	if _, was, err := w.plugin(nil).Undrain(w.t.Context(), a, "fan replaced", alice); err != nil || !was {
		w.t.Fatalf("Undrain = %t, %v; want it undrained", was, err)
	}
}

// boundByPolicy has the node's GPUs on VFIO from start-up on.
func (w *world) boundByPolicy() {
	w.t.Helper()
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound,
	}}}
	w.node.Default()
	if err := w.plugin(nil).BindByPolicy(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) driver(a pci.Address) string { return w.bindings()[a].Driver }

// wantDrainRefused checks that no claim gets the function, and why.
func (w *world) wantDrainRefused(a pci.Address) {
	w.t.Helper()
	_, err := w.plugin(nil).Prepare(w.t.Context(), w.request(other, a))
	if refused := wantRefused(w.t, err); refused == nil || !refused.Has(rule.Drained) {
		w.t.Errorf("Prepare = %v, want it refused as drained", err)
	}
	says(w.t, err, "fan", "undrain")
}

// TestDrainedDeviceGoesToNobody: a free one at once, and what goes with it too.
func TestDrainedDeviceGoesToNobody(t *testing.T) {
	tests := map[string]struct {
		build func(*world) (drained, asked pci.Address)
	}{
		"a GPU alone": {func(w *world) (pci.Address, pci.Address) {
			a := w.k.AddGPU(0x3b)
			return a, a
		}},
		"by its group mate": {func(w *world) (pci.Address, pci.Address) {
			gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
			return audio, gpu
		}},
		"by a companion": {func(w *world) (pci.Address, pci.Address) {
			gpu, companions := w.k.AddGPUWithCompanions(0x70)
			return companions[0], gpu
		}},
		"a companion by its GPU": {func(w *world) (pci.Address, pci.Address) {
			gpu, companions := w.k.AddGPUWithCompanions(0x70)
			w.node = everything()
			return gpu, companions[0]
		}},
		"a VF by its PF": {func(w *world) (pci.Address, pci.Address) {
			pf, vfs := w.k.AddNIC(0x21, 2)
			return pf, vfs[1]
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			drained, asked := tt.build(w)
			before := w.bindings()
			if state := w.mustDrain(drained); !state.Done() || !state.Has(asked) {
				t.Errorf("state %+v, want it done, and %s with it", state, asked)
			}
			w.wantDrainRefused(asked)
			if diff := cmp.Diff(before, w.bindings()); diff != "" {
				t.Errorf("a drain of what nobody has changed drivers (-want as before +got):\n%s", diff)
			}
			w.mustUndrain(asked)
			req := w.request(other, asked)
			req.Devices[0].VFIO.Reset = v1alpha1.ResetSkip // which a companion has none of
			w.mustPrepare(req)
		})
	}
}

// TestDrainKeepsDeviceOfRunningClaim: the claim stays as it is over a restart and the kubelet's
// repetition, and when it ends the device goes back to its driver.
func TestDrainKeepsDeviceOfRunningClaim(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound by policy: %t", bound), func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			home := w.driver(gpu)
			if bound {
				w.boundByPolicy()
			}
			rec := w.mustPrepare(w.request(uid, gpu))
			state := w.mustDrain(gpu)
			if state.Done() || len(state.Holders) != 1 || state.Holders[0].UID != uid {
				t.Errorf("state %+v, want it held by %s", state, uid)
			}
			w.mustRecover()
			if again := w.mustPrepare(w.request(uid, gpu)); again.State != rec.State || w.driver(gpu) != "vfio-pci" || !w.hasSpec(uid) {
				t.Errorf("the holder has it in state %s on driver %s, want %s and vfio-pci", again.State, w.driver(gpu), rec.State)
			}
			w.mustUnprepare(uid)
			states, err := w.plugin(nil).FinishDrains(t.Context())
			if err != nil || len(states) != 1 || !states[0].Done() {
				t.Errorf("FinishDrains = %+v, %v; want it done", states, err)
			}
			if got := w.driver(gpu); got != home {
				t.Errorf("driver %q, want %q", got, home)
			}
			w.wantDrainRefused(gpu)
			w.mustUndrain(gpu)
			if want := map[bool]string{true: "vfio-pci", false: home}[bound]; w.driver(gpu) != want {
				t.Errorf("driver %q after undrain, want %q", w.driver(gpu), want)
			}
		})
	}
}

// TestDrainOutlivesReboots: after one nobody has the device, whatever the policy.
func TestDrainOutlivesReboots(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	home := w.driver(gpu)
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.mustDrain(gpu)
	w.k.Reboot()
	w.mustRecover()
	if err := w.plugin(nil).BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.driver(gpu); got != home {
		t.Errorf("driver %q, want %q", got, home)
	}
	w.wantDrainRefused(gpu)
}

// TestQuarantinedDeviceStaysOnVFIO: what is not proven clean is nobody's, and no
// host driver's either.
func TestQuarantinedDeviceStaysOnVFIO(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	if state := w.mustDrain(gpu); state.Done() || len(state.Quarantined) != 1 {
		t.Errorf("state %+v, want it quarantined", state)
	}
	if got := w.driver(gpu); got != "vfio-pci" {
		t.Errorf("driver %q, want vfio-pci", got)
	}
}

// TestDrainIsSureOfNothingWithADamagedRecord: whose the device is nobody knows.
func TestDrainIsSureOfNothingWithADamagedRecord(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.boundByPolicy()
	if err := os.WriteFile(w.recordFile("damaged"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if state := w.mustDrain(gpu); state.Done() || state.Unsure == "" {
		t.Errorf("state %+v, want it unsure", state)
	}
	if got := w.driver(gpu); got != "vfio-pci" {
		t.Errorf("driver %q, want it left alone", got)
	}
}

// TestDrainRefusesForeignDevice: the error names the device, and nothing is written.
func TestDrainRefusesForeignDevice(t *testing.T) {
	w := newWorld(t)
	pf, _ := w.k.AddNIC(0x21, 0)
	for _, a := range []pci.Address{pf, {Bus: 0x77}} {
		if _, err := w.plugin(nil).Drain(t.Context(), journal.Drain{Address: a, Reason: "fan"}, alice); !errors.Is(err, maintain.ErrNotOurs) {
			t.Errorf("Drain(%s) = %v, want ErrNotOurs", a, err)
		}
	}
	if marks, err := w.records.Drains(); len(marks) > 0 || err != nil {
		t.Errorf("Drains = %v, %v; want none", marks, err)
	}
}

// TestLedgerSaysWhoDrained: and without a ledger that can be written nothing is
// drained.
func TestLedgerSaysWhoDrained(t *testing.T) {
	w := newWorld(t)
	gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
	w.mustDrain(gpu)
	w.mustUndrain(gpu)
	for _, want := range []struct {
		t      ledger.Type
		reason string
	}{{ledger.Drain, "fan"}, {ledger.Undrain, "fan replaced"}} {
		e := w.lastEvent(want.t)
		if e == nil || e.Reason != want.reason || e.By == nil || *e.By != alice || !e.Concerns(gpu) || !e.Concerns(audio) {
			t.Errorf("%s: %+v", want.t, e)
		}
	}
	_, err := w.plugin(&power{at: 1, fail: unix.ENOSPC}).Drain(t.Context(), journal.Drain{Address: gpu, Reason: "fan"}, alice)
	as[*effects.EvidenceError](t, err)
	if marks, _ := w.records.Drains(); err == nil || len(marks) > 0 {
		t.Errorf("Drain = %v with marks %v, want an error and none", err, marks)
	}
}

// lastEvent returns the last event of a type, nil if there is none.
func (w *world) lastEvent(kind ledger.Type) (last *ledger.Event) {
	w.t.Helper()
	for e, err := range ledger.Events(os.DirFS(w.history)) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Event.Type == kind {
			last = e.Event
		}
	}
	return last
}

// hookedLocks calls hook before a lock of the name is taken, once.
type hookedLocks struct {
	effects.Locks
	name string
	hook func()
}

func (h *hookedLocks) Acquire(ctx context.Context, locks ...effects.Lock) (func(), error) {
	if hook := h.hook; hook != nil && slices.ContainsFunc(locks, func(l effects.Lock) bool { return l.Name == h.name }) {
		h.hook = nil
		hook()
	}
	return h.Locks.Acquire(ctx, locks...)
}

// TestEndThatIsOvertakenTakesNothingAway: between the look that finds a device free
// and its locks somebody undrains it, and a claim gets it.
func TestEndThatIsOvertakenTakesNothingAway(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.mustDrain(gpu)
	w.mustUnprepare(uid)
	overtaken := false
	locks := &hookedLocks{Locks: w.locks, name: "claim-standing-" + gpu.Label(), hook: func() {
		w.mustUndrain(gpu)
		w.mustPrepare(w.request(other, gpu))
		overtaken = true
	}}
	plugin := w.plugin(nil, func(c *prepare.Config) { c.Parts.Locks = locks })
	if _, err := plugin.FinishDrains(t.Context()); err != nil || !overtaken {
		t.Fatalf("FinishDrains = %v, overtaken: %t; want nil, true", err, overtaken)
	}
	if got := w.driver(gpu); got != "vfio-pci" {
		t.Errorf("driver %s, want vfio-pci: it was taken from under its claim", got)
	}
}

// drainActs are what a crash may cut off.
func drainActs() []struct {
	name  string
	begin func(*world, pci.Address)
	run   func(*world, *power, pci.Address) error
} {
	run := func(w *world, p *power, a pci.Address) error {
		_, err := w.plugin(p).Drain(w.t.Context(), journal.Drain{Address: a, Reason: "fan"}, alice)
		return err
	}
	return []struct {
		name  string
		begin func(*world, pci.Address)
		run   func(*world, *power, pci.Address) error
	}{
		{"drain", func(*world, pci.Address) {}, run},
		{"drain of one in use", func(w *world, a pci.Address) { w.mustPrepare(w.request(uid, a)) }, run},
		{"the end of its claim", func(w *world, a pci.Address) {
			w.mustPrepare(w.request(uid, a))
			w.mustDrain(a)
		}, func(w *world, p *power, _ pci.Address) error {
			plugin := w.plugin(p)
			_, err := plugin.Unprepare(w.t.Context(), uid)
			_, finish := plugin.FinishDrains(w.t.Context())
			return errors.Join(err, finish)
		}},
		{"undrain", func(w *world, a pci.Address) { w.mustDrain(a) }, func(w *world, p *power, a pci.Address) error {
			_, _, err := w.plugin(p).Undrain(w.t.Context(), a, "fan replaced", alice)
			return err
		}},
	}
}

// TestCrashInADrain cuts the power before and after every effect. After a start
// the device is either in use as ever, or drained with nobody but its holder, and
// the ledger has its event.
func TestCrashInADrain(t *testing.T) {
	for _, bound := range []bool{false, true} {
		for _, a := range drainActs() {
			t.Run(fmt.Sprintf("%s, bound by policy: %t", a.name, bound), func(t *testing.T) {
				for at := 1; ; at++ {
					p := &power{at: at}
					for _, p.after = range []bool{false, true} {
						p.count, p.off = 0, false
						crashInADrain(t, bound, p, a.begin, a.run)
					}
					if !p.off {
						if at == 1 {
							t.Error("no effect to cut off")
						}
						return
					}
				}
			})
		}
	}
}

func crashInADrain(t *testing.T, bound bool, p *power, begin func(*world, pci.Address), run func(*world, *power, pci.Address) error) {
	t.Helper()
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	home := w.driver(gpu)
	if bound {
		w.boundByPolicy()
	}
	begin(w, gpu)
	_ = run(w, p, gpu) // the process is dead: nobody sees its error
	where := fmt.Sprintf("cut at effect %d (after: %t)", p.at, p.after)
	w.mustRecover()
	if err := w.plugin(nil).BindByPolicy(t.Context()); err != nil {
		t.Fatalf("%s: %v, want nil", where, err)
	}
	marks, err := w.records.Drains()
	if err != nil {
		t.Fatal(err)
	}
	drained := slices.ContainsFunc(marks, func(d journal.Drain) bool { return d.Address == gpu })
	held := w.record(uid) != nil
	want := home
	if held || bound && !drained {
		want = "vfio-pci"
	}
	if got := w.driver(gpu); got != want {
		t.Errorf("%s: driver %q, want %q (held: %t, drained: %t)", where, got, want, held, drained)
	}
	if drained && w.lastEvent(ledger.Drain) == nil {
		t.Errorf("%s: drained, and the ledger has no event of it, want one", where)
	}
	if held {
		w.mustUnprepare(uid)
		w.mustRecover()
	}
	if drained {
		w.wantDrainRefused(gpu)
	} else {
		w.mustPrepare(w.request(other, gpu))
	}
	if slices.Contains([]string{home}, w.driver(gpu)) != drained {
		t.Errorf("%s: at the end driver %q, want %s: %t", where, w.driver(gpu), home, drained)
	}
}

// everything has the node's config offer all functions.
func everything() *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "vf", "other"}}}}}
	c.Default()
	return c
}

// TestOneDrainChangesNoOther: a PF and its VF are drained for reasons of their own, and
// only one of them has pods evicted.
func TestOneDrainChangesNoOther(t *testing.T) {
	for _, evicts := range []string{"PF", "VF"} {
		t.Run(evicts+" evicts", func(t *testing.T) {
			w := newWorld(t)
			pf, vfs := w.k.AddNIC(0x21, 2)
			marks := []journal.Drain{{Address: pf, Reason: "cable", Evict: evicts == "PF"}, {Address: vfs[0], Reason: "tenant", Evict: evicts == "VF"}}
			for _, d := range marks {
				if _, err := w.plugin(nil).Drain(t.Context(), d, alice); err != nil {
					t.Fatal(err)
				}
			}
			got, err := w.records.Drains()
			if err != nil || len(got) != 2 {
				t.Fatalf("marks %v, %v; want two", got, err)
			}
			for _, d := range marks {
				i := slices.IndexFunc(got, func(mark journal.Drain) bool { return mark.Address == d.Address })
				if mark := got[max(i, 0)]; mark.Reason != d.Reason || mark.Evict != d.Evict {
					t.Errorf("mark %+v, want %+v", mark, d)
				}
			}
			w.mustUndrain(vfs[0])
			w.wantDrainedWith(vfs[0], pf)
			w.mustUndrain(vfs[0])
			w.wantDrainedWith(vfs[0], pci.Address{})
			w.mustPrepare(w.request(other, vfs[0]))
		})
	}
}

// wantDrainedWith checks on whose account a function is out of use; the zero address for
// one that is in use.
func (w *world) wantDrainedWith(a, want pci.Address) {
	w.t.Helper()
	got, out, err := w.plugin(nil).DrainedWith(w.t.Context(), a)
	if err != nil || out != (want != pci.Address{}) || out && got != want {
		w.t.Errorf("DrainedWith(%s) = %s, %t, %v; want %s", a, got, out, err, want)
	}
}

// TestDrainThatIsTakenBackHasNoEnd: the caller that waits for its end gets an error.
func TestDrainThatIsTakenBackHasNoEnd(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	state := w.mustDrain(gpu)
	w.mustUndrain(gpu)
	w.mustUnprepare(uid)
	w.mustPrepare(w.request(other, gpu))
	if state, err := w.plugin(nil).FinishDrain(t.Context(), state.Drain); !errors.Is(err, maintain.ErrNotDrained) {
		t.Errorf("FinishDrain = %+v, %v; want ErrNotDrained", state, err)
	}
	if states, err := w.plugin(nil).FinishDrains(t.Context()); err != nil || len(states) > 0 {
		t.Errorf("FinishDrains = %+v, %v; want none", states, err)
	}
}

// TestStartDoesNotWaitForADrain: an instance that hangs in an unbind has the lock of a
// standing binding. The start leaves that for later, and ends the other.
func TestStartDoesNotWaitForADrain(t *testing.T) {
	w := newWorld(t)
	stuck, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	w.boundByPolicy()
	for _, gpu := range []pci.Address{stuck, free} {
		if err := w.records.MarkDrained(t.Context(), journal.Drain{Address: gpu, Reason: "fan"}); err != nil {
			t.Fatal(err)
		}
	}
	release, err := w.locks.Acquire(t.Context(), effects.Lock{Name: "claim-standing-" + stuck.Label()})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	w.recover = time.Second
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Unfinished) != 2 { // the record itself, and the drain
		t.Fatalf("Recover = %+v, %v; want record and drain unfinished", r, err)
	}
	says(t, r.Unfinished[1], "return 0000:3b:00.0 to its driver", "a later try continues")
	if w.driver(stuck) != "vfio-pci" || w.driver(free) == "vfio-pci" {
		t.Errorf("drivers %s and %s, want vfio-pci and another", w.driver(stuck), w.driver(free))
	}
	release()
	w.mustRecover()
	if got := w.driver(stuck); got == "vfio-pci" {
		t.Errorf("driver %s once the lock is free, want another", got)
	}
}
