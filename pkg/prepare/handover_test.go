package prepare_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// mustHandOver gives the claim's functions to a sandbox.
func (w *world) mustHandOver(sandbox string) {
	w.t.Helper()
	if err := w.plugin(nil).HandOver(w.t.Context(), uid, journal.Sandbox{ID: sandbox, NetNS: "/run/netns/" + sandbox}); err != nil {
		w.t.Fatal(err)
	}
}

// handedOver prepares a claim on a GPU and hands it to the sandbox "first".
func handedOver(t *testing.T) (*world, pci.Address) {
	t.Helper()
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.mustHandOver("first")
	if n := len(w.k.Resets()); n != 0 {
		t.Fatalf("%d resets before the first sandbox, want none: prepare has just taken the function", n)
	}
	return w, gpu
}

// TestSecondSandboxGetsACleanDevice: the kubelet makes a pod's sandbox again
// without a call of the driver. The VM before it was the same tenant's, but what runs
// in the next one must not depend on it.
func TestSecondSandboxGetsACleanDevice(t *testing.T) {
	w, gpu := handedOver(t)
	w.mustHandOver("second")
	rec := w.record(uid)
	if resets := w.k.Resets(); len(resets) != 1 || resets[0].Address != gpu {
		t.Errorf("resets %+v, want one of %s", resets, gpu)
	}
	if rec.State != journal.Prepared || rec.Sandbox == nil || rec.Sandbox.ID != "second" || rec.Sandbox.Since == "" || len(rec.Proofs) != 1 {
		t.Errorf("record %+v with sandbox %+v, want it prepared, with a proof, at the second", rec, rec.Sandbox)
	}
	if !w.hasSpec(uid) {
		t.Error("the claim has lost its CDI spec")
	}
}

// TestHandOverAgain: the same sandbox may be handed over twice, first without its VMM.
func TestHandOverAgain(t *testing.T) {
	w, _ := handedOver(t)
	had := *w.record(uid).Sandbox
	vmm := journal.Process{PID: 4711, StartTime: 99}
	for _, sb := range []journal.Sandbox{{ID: "first", VMM: vmm}, {ID: "first"}, {ID: "first", VMM: vmm}} {
		if err := w.plugin(nil).HandOver(t.Context(), uid, sb); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.record(uid).Sandbox; *got != (journal.Sandbox{ID: "first", VMM: vmm, NetNS: "/run/netns/first", Since: had.Since, Ticks: had.Ticks}) {
		t.Errorf("sandbox %+v, want the first with its VMM and its namespace", got)
	}
	if n := len(w.k.Resets()); n != 0 {
		t.Errorf("%d resets of a device in use, want none", n)
	}
}

// TestHandOverWaitsForTheFormerVM: as long as it lives, nobody else gets its device.
func TestHandOverWaitsForTheFormerVM(t *testing.T) {
	w, gpu := handedOver(t)
	h := w.hold(gpu)
	err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second"})
	used := as[*effects.InUseError](t, err)
	if used.Address != gpu {
		t.Errorf("in use: %+v, want %s", used, gpu)
	}
	if n, sb := len(w.k.Resets()), w.record(uid).Sandbox; n != 0 || sb.ID != "first" {
		t.Errorf("%d resets, sandbox %+v; want none and the first", n, sb)
	}
	h.Release()
	w.mustHandOver("second")
}

// TestHandOverSaysWhoHoldsTheDeviceWhileRenewWaits: Kata's Rust runtime leaves the VM of a shim that was killed. The next sandbox gets that error at once,
// although the clean-up after the former one waits for that VM all the time.
func TestHandOverSaysWhoHoldsTheDeviceWhileRenewWaits(t *testing.T) {
	w, gpu := handedOver(t)
	w.hold(gpu)
	ctx, cancel := context.WithCancel(t.Context())
	waits, renewed := make(chan struct{}), make(chan error, 1)
	renewing := w.waiter(func(ctx context.Context, _ []vfio.Holder) error {
		close(waits)
		<-ctx.Done()
		return ctx.Err()
	})
	go func() {
		_, err := renewing.Renew(ctx, uid, "first")
		renewed <- err
	}()
	<-waits
	err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second"})
	if used := as[*effects.InUseError](t, err); used.Address != gpu {
		t.Errorf("in use: %+v, want %s", used, gpu)
	}
	cancel()
	as[*effects.InUseError](t, <-renewed)
}

// TestRenew cleans up after a sandbox, once, and only after its own.
func TestRenew(t *testing.T) {
	w, _ := handedOver(t)
	for sandbox, want := range map[string]int{"another": 0, "first": 1} {
		proofs, err := w.plugin(nil).Renew(t.Context(), uid, sandbox)
		if err != nil || len(proofs) != want {
			t.Errorf("Renew(%s) = %v, %v; want %d proofs", sandbox, proofs, err, want)
		}
	}
	if proofs, err := w.plugin(nil).Renew(t.Context(), uid, "first"); err != nil || len(proofs) != 0 {
		t.Errorf("Renew again = %v, %v; want nothing", proofs, err)
	}
	if n, sb := len(w.k.Resets()), w.record(uid).Sandbox; n != 1 || sb != nil {
		t.Errorf("%d resets, sandbox %+v; want one and none", n, sb)
	}
	w.mustHandOver("second")
	if n := len(w.k.Resets()); n != 1 {
		t.Errorf("%d resets, want 1: a clean device was reset again", n)
	}
}

// TestUncleanBetweenSandboxesIsQuarantined: the pod loses the device, also for
// its own next sandbox.
func TestUncleanBetweenSandboxesIsQuarantined(t *testing.T) {
	w, gpu := handedOver(t)
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
	for range 2 {
		err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second"})
		wantQuarantined(t, err)
	}
	if rec := w.record(uid); rec.State != journal.Quarantined || rec.Sandbox.ID != "first" || w.hasSpec(uid) {
		t.Errorf("record %+v, spec: %t; want a quarantine without a spec that names the first sandbox", rec, w.hasSpec(uid))
	}
}

// TestCutOffBetweenSandboxesIsResetAgain: a caller that gives up, as Kata does after ten seconds, says nothing of the
// device. It stays with the first sandbox until somebody has reset it.
func TestCutOffBetweenSandboxesIsResetAgain(t *testing.T) {
	w, gpu := handedOver(t)
	ctx, giveUp := context.WithCancel(t.Context())
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
		giveUp()
		return 0, unix.EINTR
	})
	err := w.plugin(nil).HandOver(ctx, uid, journal.Sandbox{ID: "second"})
	if _, is := errors.AsType[*prepare.QuarantinedError](err); err == nil || is {
		t.Errorf("HandOver = %v, want an error and no quarantine", err)
	}
	if rec := w.record(uid); rec.State != journal.Prepared || rec.Sandbox.ID != "first" {
		t.Errorf("record %+v at %+v, want it prepared, at the first sandbox", rec, rec.Sandbox)
	}
	w.k.OnReset(gpu, nil)
	w.k.CloseGroups() // its process has ended
	w.mustHandOver("second")
	if rec := w.record(uid); rec.Sandbox.ID != "second" || len(rec.Proofs) != 1 {
		t.Errorf("record %+v, want a proof at the second sandbox", rec)
	}
}

// TestCutOffUnprepareIsMadeAgain: so it is on the way back.
func TestCutOffUnprepareIsMadeAgain(t *testing.T) {
	w, gpu := handedOver(t)
	ctx, giveUp := context.WithCancel(t.Context())
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
		giveUp()
		return 0, unix.EINTR
	})
	_, err := w.plugin(nil).Unprepare(ctx, uid)
	if _, is := errors.AsType[*prepare.QuarantinedError](err); err == nil || is {
		t.Errorf("Unprepare = %v, want an error and no quarantine", err)
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Releasing || w.hasSpec(uid) {
		t.Fatalf("record %+v, spec: %t; want it on its way back, without a spec", rec, w.hasSpec(uid))
	}
	w.k.OnReset(gpu, nil)
	w.k.CloseGroups() // its process has ended
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if rec := w.record(uid); rec != nil {
		t.Errorf("record %+v is left, want none", rec)
	}
}

// TestHandOverToAPodThatLostTheClaim: the claim may have gone over to another pod while its sandbox waited.
func TestHandOverToAPodThatLostTheClaim(t *testing.T) {
	w := newWorld(t)
	req := w.request(uid, w.k.AddGPU(0x3b))
	const holder = "holder"
	req.Pods = []claim.Pod{{UID: holder, Name: "train"}}
	w.mustPrepare(req)
	w.mustHandOver("first")
	err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second", PodUID: "another"})
	if e := as[*prepare.NotPreparedError](t, err); e.PodUID != "another" {
		t.Errorf("error %+v, want one that names the pod", e)
	}
	if sb, n := w.record(uid).Sandbox, len(w.k.Resets()); sb.ID != "first" || n != 0 {
		t.Errorf("sandbox %+v after %d resets, want the first and none", sb, n)
	}
	if err := w.plugin(nil).HandOver(t.Context(), uid, journal.Sandbox{ID: "second", PodUID: holder}); err != nil {
		t.Error(err)
	}
}

// TestNothingToHandOver: a claim that is not prepared has no devices.
func TestNothingToHandOver(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	sb := journal.Sandbox{ID: "first"}
	err := w.plugin(nil).HandOver(t.Context(), uid, sb)
	if e := as[*prepare.NotPreparedError](t, err); e.State != "" {
		t.Errorf("error %+v, want one without a state", e)
	}
	w.mustPrepare(w.request(uid, gpu))
	w.k.Reboot()
	err = w.plugin(nil).HandOver(t.Context(), uid, sb)
	if e := as[*prepare.NotPreparedError](t, err); !e.EarlierBoot {
		t.Errorf("error %+v, want that of an earlier boot", e)
	}
	says(t, err, "tenant-a/"+uid, "before the node last booted")
}
