package prepare_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// resets takes each reset of the function so long, with the answer.
func resets(w *world, a pci.Address, takes time.Duration, answer error) {
	w.k.OnReset(a, func(string) (sysfstest.ResetEffect, error) {
		time.Sleep(takes)
		return sysfstest.ResetWorks, answer
	})
}

// A resettable is a device with one way to reset it.
type resettable struct {
	method string
	add    func(*world) (device, slow pci.Address)
}

// ways are both ways to reset a device: by sysfs, and together with all that is
// below its bridge, by VFIO.
func ways() []resettable {
	return []resettable{
		{isolation.FLR, func(w *world) (pci.Address, pci.Address) {
			gpu := w.k.AddGPU(0x3b)
			return gpu, gpu
		}},
		{isolation.HotReset, func(w *world) (pci.Address, pci.Address) {
			w.k.AddRootPort(0x3b)
			gpu, audio := sysfstest.GPU(pci.Address{Bus: 0x3b}), sysfstest.Audio(pci.Address{Bus: 0x3b, Function: 1})
			gpu.Group, audio.Group, gpu.ResetMethods = 15, 15, nil
			w.k.Add(gpu, audio)
			return gpu.Address, audio.Address
		}},
	}
}

// asKubelet calls Unprepare with the kubelet's patience.
func asKubelet(t *testing.T, p *prepare.Preparer) ([]isolation.Proof, time.Duration, error) {
	t.Helper()
	ctx, cancel := timeout(t, kubelet)
	defer cancel()
	start := time.Now()
	proofs, err := p.Unprepare(ctx, uid)
	return proofs, time.Since(start), err
}

// TestSlowReset: a reset that takes longer than the limit of a write is waited
// for, as long as the caller has time. One that takes longer than that is taken up
// by the next call: the device is reset once, and proven clean. It is never
// quarantined.
func TestSlowReset(t *testing.T) {
	for _, way := range ways() {
		for _, takes := range []time.Duration{15 * time.Second, 30 * time.Second, 70 * time.Second} {
			t.Run(way.method+" "+takes.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					dev, slow := way.add(w)
					before := w.state()
					p := w.plugin(nil)
					if _, err := p.Prepare(t.Context(), w.request(uid, dev)); err != nil {
						t.Fatal(err)
					}
					resets(w, slow, takes, nil)
					proofs, took, err := asKubelet(t, p)
					for tries := 0; err != nil && tries < 3; tries++ {
						if wantCutOff(t, w, err); took > kubelet {
							t.Errorf("cut off after %s", took)
						}
						proofs, took, err = asKubelet(t, p)
					}
					if err != nil || len(proofs) != 1 || proofs[0].Method != way.method || proofs[0].Milliseconds != takes.Milliseconds() {
						t.Errorf("Unprepare = %+v, %v; want one proof by %s of %s", proofs, err, way.method, takes)
					}
					if n := len(w.k.Resets()); n != len(proofs[0].Set) {
						t.Errorf("%d resets of %d functions", n, len(proofs[0].Set))
					}
					wantOneResetTold(t, w, ledger.OK)
					w.unchanged(before)
				})
			})
		}
	}
}

// wantCutOff checks an error of a call that was cut off: it says so, nothing is
// quarantined, and no VM can get the device.
func wantCutOff(t *testing.T, w *world, err error) {
	t.Helper()
	as[*control.StuckError](t, err)
	says(t, err, "has not answered", "the next try goes on from here")
	if quarantined, ok := errors.AsType[*prepare.QuarantinedError](err); ok {
		t.Errorf("quarantined: %v", quarantined)
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Releasing || w.hasSpec(uid) {
		t.Errorf("record %+v, spec: %t; want a release that goes on", rec, w.hasSpec(uid))
	}
}

// wantOneResetTold checks that the ledger has one reset of the claim, with its
// result: a reset without one is no failure.
func wantOneResetTold(t *testing.T, w *world, want ledger.Result) {
	t.Helper()
	var told []ledger.Result
	for _, e := range w.told(uid) {
		if e.Type == ledger.Reset {
			told = append(told, e.Result)
		}
	}
	if !slices.Equal(told, []ledger.Result{want}) {
		t.Errorf("the ledger has resets %v, want %v", told, want)
	}
}

// TestSlowResetThatFails: the evidence comes after the call. The next one finds it,
// without another reset, and quarantines the device.
func TestSlowResetThatFails(t *testing.T) {
	for _, way := range ways() {
		t.Run(way.method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				dev, slow := way.add(w)
				p := w.plugin(nil)
				if _, err := p.Prepare(t.Context(), w.request(uid, dev)); err != nil {
					t.Fatal(err)
				}
				resets(w, slow, 70*time.Second, unix.EIO)
				_, _, err := asKubelet(t, p)
				wantCutOff(t, w, err)
				time.Sleep(time.Minute)
				n := len(w.k.Resets())
				_, _, err = asKubelet(t, p)
				wantQuarantined(t, err)
				as[*bind.UncleanError](t, err)
				wantOneResetTold(t, w, ledger.Failed)
				if more := len(w.k.Resets()) - n; more != 0 {
					t.Errorf("%d more resets", more)
				}
			})
		})
	}
}

// TestDeviceStaysWithTheClaimDuringASlowReset: other claims, a second plugin and a
// start of the plugin leave it alone.
func TestDeviceStaysWithTheClaimDuringASlowReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		p := w.plugin(nil)
		if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
			t.Fatal(err)
		}
		resets(w, gpu, 70*time.Second, nil)
		_, _, err := asKubelet(t, p)
		wantCutOff(t, w, err)
		_, err = p.Prepare(t.Context(), w.request(other, gpu))
		if refused := wantRefused(t, err); refused == nil || !refused.Has(plan.Held) {
			t.Errorf("another claim: %v", err)
		}
		r, err := p.Recover(t.Context())
		if err != nil || len(r.Quarantined) > 0 || len(r.Released) != 1 {
			t.Errorf("Recover = %+v, %v; want the claim released", r, err)
		}
		if n := len(w.k.Resets()); n != 1 {
			t.Errorf("%d resets, want one", n)
		}
	})
}

// TestNextSandboxWaitsForASlowReset: a pod's second sandbox gets the device after
// the reset that its first try had begun, and is never refused as quarantined.
func TestNextSandboxWaitsForASlowReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		p := w.plugin(nil)
		if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
			t.Fatal(err)
		}
		if err := p.HandOver(t.Context(), uid, journal.Sandbox{ID: "first"}); err != nil {
			t.Fatal(err)
		}
		resets(w, gpu, 70*time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := p.HandOver(ctx, uid, journal.Sandbox{ID: "second"})
		as[*control.StuckError](t, err)
		if err := p.HandOver(t.Context(), uid, journal.Sandbox{ID: "third"}); err != nil {
			t.Error(err)
		}
		if rec, n := w.record(uid), len(w.k.Resets()); rec.Sandbox == nil || rec.Sandbox.ID != "third" || n != 1 {
			t.Errorf("record %+v after %d resets, want the third sandbox after one", rec, n)
		}
	})
}

// TestResetThatBeginsNowhere: a process opens the group after the look for holders.
// No reset was begun, so there is no evidence against the device.
func TestResetThatBeginsNowhere(t *testing.T) {
	w := newWorld(t)
	dev, slow := ways()[1].add(w)
	w.mustPrepare(w.request(uid, dev))
	w.k.OnReset(slow, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EBUSY })
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	as[*bind.UnfinishedError](t, err)
	if rec := w.record(uid); rec == nil || rec.State != journal.Releasing {
		t.Errorf("record %+v, want a release that goes on", rec)
	}
	resets(w, slow, 0, nil)
	w.mustUnprepare(uid)
}
