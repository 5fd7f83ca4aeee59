package prepare_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// regBAR0 is where a tenant leaves a trace: the first base address register.
const regBAR0 = 0x10

// A dirtyEnd is a reset that does not clean the device.
type dirtyEnd struct {
	tenant func(*world, pci.Address) // what the tenant leaves behind
	reset  func(string) (sysfstest.ResetEffect, error)
	words  []string
}

func dirtyEnds() map[string]dirtyEnd {
	return map[string]dirtyEnd{
		"the reset fails": {
			reset: func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO },
			words: []string{"reset 0000:3b:00.0 by flr", "input/output error"},
		},
		"the reset does nothing": {
			tenant: func(w *world, gpu pci.Address) { w.k.SetConfig(gpu, regBAR0, 0xde, 0xad) },
			reset:  func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetIgnored, nil },
			words:  []string{"reset 0000:3b:00.0 by flr", "differs from before the tenant"},
		},
		"the reset kills the device": {
			reset: func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetKills, nil },
			words: []string{"reset 0000:3b:00.0 by flr", "reads all ones"},
		},
		"the tenant has killed the device": {
			tenant: func(w *world, gpu pci.Address) { w.k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 256))...) },
			reset:  func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetIgnored, nil },
			words:  []string{"reads all ones"},
		},
	}
}

// quarantine prepares and unprepares a claim on a GPU whose reset does not
// clean it, and returns the GPU and what Unprepare said.
func (w *world) quarantine(tt dirtyEnd) (pci.Address, error) {
	w.t.Helper()
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	if tt.tenant != nil {
		tt.tenant(w, gpu)
	}
	w.k.OnReset(gpu, tt.reset)
	_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
	return gpu, err
}

// TestUncleanDeviceIsQuarantined: what can't be proven clean stays on vfio-pci
// without a spec, and says why.
func TestUncleanDeviceIsQuarantined(t *testing.T) {
	for name, tt := range dirtyEnds() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu, err := w.quarantine(tt)
			wantQuarantined(t, err)
			as[*bind.NotCleanError](t, err)
			says(t, err, append(tt.words, "quarantined", "kata-vfio-plugin unprepare "+uid)...)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %q, want one line", err)
			}
			rec := w.record(uid)
			if rec == nil || rec.State != journal.Quarantined || rec.Reason == "" || len(rec.Proofs) > 0 {
				t.Errorf("record %+v, want a quarantine with a reason and no proof", rec)
			}
			if now := w.bindings()[gpu]; now.Driver != "vfio-pci" || w.hasSpec(uid) {
				t.Errorf("bound to %q, spec: %t; want vfio-pci without a spec", now.Driver, w.hasSpec(uid))
			}
		})
	}
}

// TestQuarantineKeepsTheDeviceFromAll: the next claim, the same claim again and
// a plugin that starts again all leave it alone.
func TestQuarantineKeepsTheDeviceFromAll(t *testing.T) {
	w := newWorld(t)
	gpu, _ := w.quarantine(dirtyEnds()["the reset fails"])
	before, writes := w.state(), len(w.k.Writes())
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Quarantined) {
		t.Errorf("refused by %v, want %s", err, rule.Quarantined)
	}
	says(t, err, "quarantined", uid, "input/output error", "kata-vfio-plugin unprepare "+uid)
	_, err = w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
	wantQuarantined(t, err)
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Quarantined) != 1 || len(r.Orphans) > 0 {
		t.Errorf("Recover = %+v, %v; want the quarantine", r, err)
	}
	w.unchanged(before)
	if now := lastWrites(w, writes); len(now) > 0 {
		t.Errorf("wrote %v, want nothing", now)
	}
}

// TestRepairLiftsTheQuarantine: once the reset works again, unprepare gives the
// device back, proven clean, and the next tenant gets it.
func TestRepairLiftsTheQuarantine(t *testing.T) {
	for name, tt := range dirtyEnds() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu, _ := w.quarantine(tt)
			again := w.plugin(nil)
			_, err := again.Unprepare(t.Context(), uid)
			wantQuarantined(t, err)
			w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, nil })
			w.repair(gpu)
			release, err := again.Unprepare(t.Context(), uid)
			if err != nil || len(release.Proofs) != 1 {
				t.Fatalf("Unprepare = %+v, %v; want one proof", release, err)
			}
			if now := w.bindings()[gpu]; now != (plan.Binding{Driver: "nvidia"}) {
				t.Errorf("bound %+v, want as it was", now)
			}
			w.mustPrepare(w.request(other, gpu))
		})
	}
}

// repair does what an operator does for a device that a reset does not bring
// back: a power cycle, which restores the whole configuration space.
func (w *world) repair(gpu pci.Address) {
	w.k.SetConfig(gpu, 0, pristine(w)...)
}

// pristine returns the configuration space of such a GPU, fresh from the shop.
func pristine(w *world) []byte {
	w.t.Helper()
	spare := newWorld(w.t)
	gpu := spare.k.AddGPU(0x3b)
	data, err := spare.fs.ConfigSpace(gpu)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// TestTwoFunctionsOneUnclean: a claim of two GPUs of which one is not proven
// clean is quarantined as a whole: neither goes to a tenant.
func TestTwoFunctionsOneUnclean(t *testing.T) {
	w := newWorld(t)
	good, bad := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	w.mustPrepare(w.request(uid, good, bad))
	w.k.OnReset(bad, func(string) (sysfstest.ResetEffect, error) { return 0, unix.ENOTTY })
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	rec := w.record(uid)
	if len(rec.Proofs) != 1 || rec.Proofs[0].Set[0] != good {
		t.Errorf("proofs %+v, want that of %s alone", rec.Proofs, good)
	}
	for _, gpu := range []pci.Address{good, bad} {
		if _, err := w.plugin(nil).Prepare(t.Context(), w.request(other, gpu)); err == nil {
			t.Errorf("%s went to another tenant, want a refusal", gpu)
		}
	}
}

// TestHalfOfAResetSetIsGone: a function is pulled whose reset would have
// cleaned its neighbor too. The neighbor is reset all the same.
func TestHalfOfAResetSetIsGone(t *testing.T) {
	w := newWorld(t)
	gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
	w.mustPrepare(w.request(uid, gpu))
	w.k.Remove(gpu)
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	resets := w.k.Resets()
	if len(resets) != 1 || resets[0].Address != audio || resets[0].Err != nil {
		t.Errorf("resets %+v, want one of %s", resets, audio)
	}
	if now := w.bindings()[audio]; now.Driver != "snd_hda_intel" {
		t.Errorf("%s is bound to %q, want snd_hda_intel", audio, now.Driver)
	}
}

// TestQuarantineOutlivesAReboot: a restart proves nothing. The device stays
// away from other claims until a reset succeeds, for which it is taken from the
// driver that the new boot gave it.
func TestQuarantineOutlivesAReboot(t *testing.T) {
	w := newWorld(t)
	before := w.bindings()
	gpu, err := w.quarantine(dirtyEnds()["the reset fails"])
	wantQuarantined(t, err)
	w.k.Reboot()
	w.k.SetConfig(gpu, 0x10, 0x00, 0x00, 0x00, 0xa0) // the new boot's firmware placed its first BAR elsewhere
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Quarantined) != 1 || len(r.Unfinished) > 0 {
		t.Fatalf("Recover = %+v, %v; want one quarantine", r, err)
	}
	_, err = w.plugin(nil).Prepare(t.Context(), w.request("another", gpu))
	says(t, err, "0000:3b:00.0", "quarantined", "unprepare "+uid)
	_, err = w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, nil })
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	before[gpu] = plan.Binding{Driver: "nvidia"}
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("after the reset (-want +got):\n%s", diff)
	}
	if w.record(uid) != nil {
		t.Error("the record is still there")
	}
}
