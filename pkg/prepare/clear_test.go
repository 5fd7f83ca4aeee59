package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func (w *world) resets(works bool) func(string) (sysfstest.ResetEffect, error) {
	if works {
		return func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, nil }
	}
	return func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO }
}

// quarantined returns a GPU whose tenant has left it in quarantine, and its driver from before.
func (w *world) quarantined() (gpu pci.Address, home string) {
	w.t.Helper()
	gpu = w.k.AddGPU(0x3b)
	home = w.driver(gpu)
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnReset(gpu, w.resets(false))
	_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
	wantQuarantined(w.t, err)
	return gpu, home
}

func clearing(withoutProof bool) maintain.Clearance {
	return maintain.Clearance{Reason: "ticket 4711", By: alice, WithoutProof: withoutProof}
}

// TestQuarantineEndsByAProof: and not without one, unless the operator waives it.
func TestQuarantineEndsByAProof(t *testing.T) {
	w := newWorld(t)
	gpu, home := w.quarantined()
	_, err := w.plugin(nil).Clear(t.Context(), uid, clearing(false))
	wantQuarantined(t, err)
	if w.record(uid) == nil || w.driver(gpu) != "vfio-pci" {
		t.Fatal("the quarantine ended without a proof")
	}
	w.k.OnReset(gpu, w.resets(true))
	proofs, err := w.plugin(nil).Clear(t.Context(), uid, clearing(false))
	if err != nil || len(proofs) != 1 || w.record(uid) != nil || w.driver(gpu) != home || len(w.unclean()) > 0 {
		t.Errorf("Clear = %v, %v; driver %s, marks %v; want one proof, driver %s and no mark", proofs, err, w.driver(gpu), w.unclean(), home)
	}
	if e := w.lastEvent(ledger.Clear); e == nil || e.Reason != "ticket 4711" || e.By == nil || *e.By != alice || len(e.Codes) > 0 {
		t.Errorf("the ledger has %+v, want the reason ticket 4711 by %v, and no code", e, alice)
	}
}

// TestQuarantineClearedWithoutProofIsRemembered: the device is with its driver,
// and the next tenant still has it reset first.
func TestQuarantineClearedWithoutProofIsRemembered(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a reboot: %t", reboot), func(t *testing.T) {
			w := newWorld(t)
			gpu, home := w.quarantined()
			if reboot {
				w.k.Reboot()
				w.mustRecover()
			}
			resets := len(w.k.Resets())
			w.k.OnReset(gpu, w.resets(!reboot)) // after a reboot there is none that could fail
			if _, err := w.plugin(nil).Clear(t.Context(), uid, clearing(true)); err != nil {
				t.Fatal(err)
			}
			if w.record(uid) != nil || w.driver(gpu) != home {
				t.Errorf("record %v, driver %s; want nil and %s", w.record(uid), w.driver(gpu), home)
			}
			if made := len(w.k.Resets()) > resets; made == reboot {
				t.Errorf("reset before the host's driver has it: %t, want %t", made, !reboot)
			}
			w.k.OnReset(gpu, w.resets(false))
			if diff := cmp.Diff([]pci.Address{gpu}, w.unclean()); diff != "" {
				t.Errorf("marked (-want +got):\n%s", diff)
			}
			if e := w.lastEvent(ledger.Release); e == nil || len(e.Codes) != 1 || e.Codes[0] != ledger.CodeUnproven || e.By == nil {
				t.Errorf("the ledger has %+v, want %s by an operator", e, ledger.CodeUnproven)
			}
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu))
			wantQuarantined(t, err) // its reset still fails
		})
	}
}

// TestClearKeepsUnresettableDeviceFromHostDriver: not even where an operator does without a proof. A
// function that stays on VFIO needs no reset for that.
func TestClearKeepsUnresettableDeviceFromHostDriver(t *testing.T) {
	w := newWorld(t)
	gpu, _ := w.quarantined()
	_, err := w.plugin(nil).Clear(t.Context(), uid, clearing(true))
	if err == nil || !strings.Contains(err.Error(), "power-cycle the node") {
		t.Errorf("Clear = %v, want what to do", err)
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Quarantined || w.driver(gpu) != "vfio-pci" {
		t.Errorf("record %v, driver %s, want the quarantine as it was", rec, w.driver(gpu))
	}

	bound := newWorld(t)
	gpu = bound.k.AddGPU(0x3b)
	bound.boundByPolicy()
	bound.mustPrepare(bound.request(uid, gpu))
	bound.k.OnReset(gpu, bound.resets(false))
	_, err = bound.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	if _, err := bound.plugin(nil).Clear(t.Context(), uid, clearing(true)); err != nil || bound.record(uid) != nil || bound.driver(gpu) != "vfio-pci" {
		t.Errorf("Clear = %v; record %v, driver %s, want it on VFIO by policy", err, bound.record(uid), bound.driver(gpu))
	}
}

// TestClearRefusesDeviceWithoutQuarantine: nothing else comes off the node by it.
func TestClearRefusesDeviceWithoutQuarantine(t *testing.T) {
	w := newWorld(t)
	w.mustPrepare(w.request(uid, w.k.AddGPU(0x3b)))
	for _, id := range []string{uid, other} {
		if _, err := w.plugin(nil).Clear(t.Context(), id, clearing(true)); !errors.Is(err, maintain.ErrNotQuarantined) {
			t.Errorf("Clear(%s) = %v, want ErrNotQuarantined", id, err)
		}
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Prepared {
		t.Errorf("record %+v, want it prepared", rec)
	}
}

// TestCrashInAClear: wherever it is cut off, the function is quarantined, marked, or
// proven clean.
func TestCrashInAClear(t *testing.T) {
	for _, withoutProof := range []bool{false, true} {
		t.Run(fmt.Sprintf("without proof: %t", withoutProof), func(t *testing.T) {
			for at := 1; ; at++ {
				var p *power
				for _, after := range []bool{false, true} {
					p = &power{at: at, after: after}
					crashInAClear(t, p, withoutProof)
				}
				if !p.off {
					return
				}
			}
		})
	}
}

func crashInAClear(t *testing.T, p *power, withoutProof bool) {
	t.Helper()
	w := newWorld(t)
	gpu, home := w.quarantined()
	w.k.OnReset(gpu, w.resets(true))
	_, _ = w.plugin(p).Clear(t.Context(), uid, clearing(withoutProof)) // nobody sees its error
	where := fmt.Sprintf("cut at effect %d (after: %t)", p.at, p.after)
	// Without a restart of the plugin, nobody but the operator continues: by another Clear, or by Unprepare after the proof.
	if rec := w.record(uid); rec != nil && rec.State != journal.Quarantined && rec.State != journal.Cleaned {
		t.Errorf("%s: record %s, want %s or %s", where, rec.State, journal.Quarantined, journal.Cleaned)
	}
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 {
		t.Fatalf("%s: Recover = %+v, %v; want nothing unfinished", where, r, err)
	}
	if rec := w.record(uid); rec != nil {
		if rec.State != journal.Quarantined || w.driver(gpu) != "vfio-pci" {
			t.Errorf("%s: record %s, driver %s; want %s and vfio-pci", where, rec.State, w.driver(gpu), journal.Quarantined)
		}
		return
	}
	if w.driver(gpu) != home {
		t.Errorf("%s: driver %s, want %s", where, w.driver(gpu), home)
	}
	if marked := len(w.unclean()) == 1; marked != withoutProof {
		t.Errorf("%s: marked: %t, want %t", where, marked, withoutProof)
	}
}

// TestQuarantineOfAnEarlierBootIsClearedWithoutATouch: policy "bound" had the function
// on VFIO before its claim, and the node is using it now.
func TestQuarantineOfAnEarlierBootIsClearedWithoutATouch(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	home := w.driver(gpu)
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnReset(gpu, w.resets(false))
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	w.k.Reboot()
	w.mustRecover()
	writes := len(w.k.Writes())
	if _, err := w.plugin(nil).Clear(t.Context(), uid, clearing(true)); err != nil {
		t.Fatal(err)
	}
	if now := lastWrites(w, writes); len(now) > 0 || w.driver(gpu) != home || w.record(uid) != nil {
		t.Errorf("wrote %v, driver %s, record %v; want nothing, %s and nil", now, w.driver(gpu), w.record(uid), home)
	}
	if diff := cmp.Diff([]pci.Address{gpu}, w.unclean()); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
	if e := w.lastEvent(ledger.Unprepare); e == nil || len(e.Codes) != 1 || e.Codes[0] != ledger.CodeUnproven {
		t.Errorf("the ledger ends it by %+v, want %s", e, ledger.CodeUnproven)
	}
}

// TestVFClearedAfterARebootKeepsWhatItHas: what it had in another boot is nobody's.
func TestVFClearedAfterARebootKeepsWhatItHas(t *testing.T) {
	for _, withoutProof := range []bool{false, true} {
		t.Run(fmt.Sprintf("without proof: %t", withoutProof), func(t *testing.T) {
			w, pf, vfs := withNIC(t, vftest.Igb())
			w.links.Set(pf, 0, func(s *device.VFSettings) { s.MAC = "02:00:00:00:00:01" })
			w.mustPrepare(w.request(uid, vfs[0]))
			w.k.OnReset(vfs[0], w.resets(false))
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			wantQuarantined(t, err)
			w.k.Reboot()
			w.links.Set(pf, 0, func(s *device.VFSettings) {
				s.MAC, s.VLAN = "02:00:00:00:00:02", &device.VLAN{ID: 7, Protocol: "802.1Q"}
			})
			before := w.settings(pf, 0)
			w.k.OnReset(vfs[0], w.resets(true))
			if _, err := w.plugin(nil).Clear(t.Context(), uid, clearing(withoutProof)); err != nil {
				t.Fatal(err)
			}
			if got := w.settings(pf, 0); got != before || w.driver(vfs[0]) != "igbvf" {
				t.Errorf("driver %s, the PF imposes %q, want %q", w.driver(vfs[0]), got, before)
			}
		})
	}
}

// TestQuarantineProvenAfterARebootEndsWithTheHost: the standing binding of policy
// "bound" has ended with its boot.
func TestQuarantineProvenAfterARebootEndsWithTheHost(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	home := w.driver(gpu)
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnReset(gpu, w.resets(false))
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	w.k.Reboot()
	w.mustRecover()
	w.k.OnReset(gpu, w.resets(true))
	if proofs, err := w.plugin(nil).Clear(t.Context(), uid, clearing(false)); err != nil || len(proofs) != 1 {
		t.Fatalf("Clear = %v, %v; want one proof", proofs, err)
	}
	if got := w.driver(gpu); got != home || w.record(uid) != nil {
		t.Errorf("driver %s, want %s; record %v", got, home, w.record(uid))
	}
}

// TestClearWaitsForASlowReset for longer than it waits for locks: the kernel may need more than a minute.
func TestClearWaitsForASlowReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit = 20 * time.Second // of a write; the kernel has six times that for a reset
		gpu, home := w.quarantined()
		resets(w, gpu, 70*time.Second, nil)
		proofs, err := w.plugin(nil).Clear(t.Context(), uid, clearing(false))
		if err != nil || len(proofs) != 1 || w.record(uid) != nil || w.driver(gpu) != home {
			t.Errorf("Clear = %v, %v; record %v, driver %s; want one proof, no record and %s", proofs, err, w.record(uid), w.driver(gpu), home)
		}
	})
}

// TestInterruptedClearIsRepeated: whoever interrupts it, the quarantine stands.
func TestInterruptedClearIsRepeated(t *testing.T) {
	for name, try := range map[string]func(context.Context, *plugin) error{
		"clear": func(ctx context.Context, p *plugin) error {
			_, err := p.Clear(ctx, uid, clearing(false))
			return err
		},
		"unprepare": func(ctx context.Context, p *plugin) error {
			_, err := p.Unprepare(ctx, uid)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				gpu, _ := w.quarantined()
				resets(w, gpu, 30*time.Second, nil)
				p := w.plugin(nil)
				ctx, cancel := timeout(t, 10*time.Second)
				defer cancel()
				if err := try(ctx, p); err == nil {
					t.Error("done within 10s by a reset that takes 30s")
				}
				if rec := w.record(uid); rec == nil || rec.State != journal.Quarantined {
					t.Fatalf("record %+v, want %s", rec, journal.Quarantined)
				}
				if _, err := p.Clear(t.Context(), uid, clearing(false)); err != nil || w.record(uid) != nil || len(w.unclean()) > 0 {
					t.Errorf("Clear = %v; record %v, marks %v; want none", err, w.record(uid), w.unclean())
				}
			})
		})
	}
}
