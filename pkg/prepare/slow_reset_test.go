package prepare_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
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
func asKubelet(t *testing.T, p *plugin) error {
	t.Helper()
	return patiently(t, func(ctx context.Context) error {
		_, err := p.Unprepare(ctx, uid)
		return err
	})
}

// A resetting is a call that resets a claim's device.
type resetting struct {
	name string
	// begin sets the stage, call is what resets.
	begin func(w *world, p *plugin, dev pci.Address)
	call  func(ctx context.Context, p *plugin, req *claim.Request) error
	// during and after are the states of the record while the reset runs and then;
	// empty if there is none.
	during, after journal.State
}

// resettings are all calls that reset a device for a claim.
func resettings() []resetting {
	prepared := func(w *world, p *plugin, dev pci.Address) {
		if _, err := p.Prepare(w.t.Context(), w.request(uid, dev)); err != nil {
			w.t.Fatal(err)
		}
	}
	return []resetting{
		{"the end of a claim", prepared, func(ctx context.Context, p *plugin, _ *claim.Request) error {
			_, err := p.Unprepare(ctx, uid)
			return err
		}, journal.Releasing, ""},
		{"the second sandbox of a pod", func(w *world, p *plugin, dev pci.Address) {
			prepared(w, p, dev)
			w.mustHandOver("first")
		}, func(ctx context.Context, p *plugin, _ *claim.Request) error {
			return p.HandOver(ctx, uid, journal.Sandbox{ID: "second"})
		}, journal.Prepared, journal.Prepared},
		{"a device that is not proven clean", func(w *world, _ *plugin, dev pci.Address) {
			w.markUnclean(dev)
		}, func(ctx context.Context, p *plugin, req *claim.Request) error {
			_, err := p.Prepare(ctx, req)
			return err
		}, journal.Preparing, journal.Prepared},
	}
}

// patiently makes a call with the kubelet's patience.
func patiently(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := timeout(t, kubelet)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > kubelet {
		t.Errorf("answered after %s, want at most %s: %v", took, kubelet, err)
	}
	return err
}

// A slowReset is a node on which a call resets a device, slowly.
type slowReset struct {
	*world
	resetting
	way       resettable
	dev, slow pci.Address
	req       *claim.Request
	before    state // of the node without the claim
}

// eachSlowReset runs a test of each way to reset a device in each call that does.
func eachSlowReset(t *testing.T, locking sysfstest.LockingReads, test func(*testing.T, *plugin, *slowReset)) {
	for _, call := range resettings() {
		for _, way := range ways() {
			t.Run(call.name+" by "+way.method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &slowReset{world: newWorld(t), resetting: call, way: way}
					s.fs = s.k.Reading(s.fs, locking)
					s.dev, s.slow = way.add(s.world)
					s.before = s.state()
					p := s.plugin(nil)
					call.begin(s.world, p, s.dev)
					s.req = s.request(uid, s.dev)
					test(t, p, s)
				})
			})
		}
	}
}

// try makes the call with the kubelet's patience.
func (s *slowReset) try(p *plugin) error {
	s.t.Helper()
	return patiently(s.t, func(ctx context.Context) error { return s.call(ctx, p, s.req) })
}

// wantCutOff checks an error of a call that was cut off: it says so, nothing is
// quarantined, and no VM can get the device.
func (s *slowReset) wantCutOff(err error) {
	s.t.Helper()
	as[*control.StuckError](s.t, err)
	says(s.t, err, "has not answered", "the next try continues from here")
	s.wantUnknown(err)
}

// wantUnknown checks that an error has no verdict on the device.
func (s *slowReset) wantUnknown(err error) {
	s.t.Helper()
	if quarantined, ok := errors.AsType[*prepare.QuarantinedError](err); ok {
		s.t.Errorf("quarantined: %v, want no quarantine", quarantined)
	}
	rec := s.record(uid)
	if rec == nil || rec.State != s.during {
		s.t.Fatalf("record %+v, want one that is %s", rec, s.during)
	}
	if s.during != journal.Prepared && s.hasSpec(uid) {
		s.t.Error("it has a CDI spec")
	}
}

// wantDone checks that the claim is where the call takes it, and that it can end.
func (s *slowReset) wantDone() {
	s.t.Helper()
	rec := s.record(uid)
	if s.after == "" && rec != nil || s.after != "" && (rec == nil || rec.State != s.after) {
		s.t.Fatalf("record %+v, want it %q", rec, s.after)
	}
	if marks := s.unclean(); len(marks) > 0 {
		s.t.Errorf("marked: %v, want none", marks)
	}
	resets(s.world, s.slow, 0, nil)
	s.mustUnprepare(uid)
	s.unchanged(s.before)
}

// TestSlowReset: a reset that takes longer than the limit of a write is waited
// for, as long as the caller has time. One that takes longer than that is taken up
// by the next call: the device is reset once, and proven clean. It is never
// quarantined.
func TestSlowReset(t *testing.T) {
	for _, takes := range []time.Duration{15 * time.Second, 30 * time.Second, 70 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			eachSlowReset(t, sysfstest.MiddleKernel(), func(t *testing.T, p *plugin, s *slowReset) {
				resets(s.world, s.slow, takes, nil)
				err := s.try(p)
				for tries := 0; err != nil && tries < 3; tries++ {
					s.wantCutOff(err)
					err = s.try(p)
				}
				if err != nil {
					t.Fatal(err)
				}
				told := wantOneResetTold(t, s.world, ledger.OK)
				if told.Reset.Method != s.way.method || told.Reset.Milliseconds != takes.Milliseconds() {
					t.Errorf("told of a reset by %s of %d ms, want %s of %s", told.Reset.Method, told.Reset.Milliseconds, s.way.method, takes)
				}
				if n := len(s.k.Resets()); n != len(told.Reset.Set) {
					t.Errorf("%d resets, want %d", n, len(told.Reset.Set))
				}
				s.wantDone()
			})
		})
	}
}

// wantOneResetTold checks that the ledger has one reset of the claim, with its
// result: a reset without one is not a failure.
func wantOneResetTold(t *testing.T, w *world, want ledger.Result) *ledger.Event {
	t.Helper()
	var told []ledger.Event
	for _, e := range w.told(uid) {
		if e.Type == ledger.Reset {
			told = append(told, e)
		}
	}
	if len(told) != 1 || told[0].Result != want {
		t.Fatalf("the ledger has resets %+v, want one, %s", told, want)
	}
	return &told[0]
}

// TestSlowResetThatFails: the evidence comes after the call. The next one finds it,
// without another reset, and quarantines the device.
func TestSlowResetThatFails(t *testing.T) {
	eachSlowReset(t, sysfstest.NewerKernel(), func(t *testing.T, p *plugin, s *slowReset) {
		resets(s.world, s.slow, 70*time.Second, unix.EIO)
		s.wantCutOff(s.try(p))
		time.Sleep(time.Minute)
		n := len(s.k.Resets())
		err := s.try(p)
		wantQuarantined(t, err)
		as[*bind.NotCleanError](t, err)
		wantOneResetTold(t, s.world, ledger.Failed)
		if more := len(s.k.Resets()) - n; more != 0 {
			t.Errorf("%d more resets, want none", more)
		}
	})
}

// TestClaimEndsDuringASlowReset: whoever ends a claim during the reset waits for it,
// and the device is not marked as clean without a proof.
func TestClaimEndsDuringASlowReset(t *testing.T) {
	eachSlowReset(t, sysfstest.NewerKernel(), func(t *testing.T, p *plugin, s *slowReset) {
		resets(s.world, s.slow, 70*time.Second, nil)
		s.wantCutOff(s.try(p))
		for {
			err := patiently(t, func(ctx context.Context) error {
				_, err := p.Unprepare(ctx, uid)
				return err
			})
			if err == nil {
				break
			}
			as[*control.StuckError](t, err)
		}
		s.unchanged(s.before)
		if marks := s.unclean(); s.during == journal.Preparing && len(marks) == 0 {
			t.Error("it counts as clean, and nothing has proven that")
		}
	})
}

// TestAnotherPluginDuringASlowReset: a plugin that starts during a reset, which the
// kernel goes on with for the one before it, finds a device that it can't look at. It
// leaves the device alone, and once the kernel has ended makes a reset of its own,
// since nobody knows the result of the other.
func TestAnotherPluginDuringASlowReset(t *testing.T) {
	for name, locking := range kernels() {
		for _, takes := range []time.Duration{15 * time.Second, 30 * time.Second, 70 * time.Second} {
			t.Run(name+"/"+takes.String(), func(t *testing.T) {
				eachSlowReset(t, locking, func(t *testing.T, p *plugin, s *slowReset) {
					resets(s.world, s.slow, takes, nil)
					begun := time.Now()
					ctx, cancel := timeout(t, 5*time.Second)
					defer cancel()
					s.wantCutOff(s.call(ctx, p, s.req))
					s.k.CloseGroups()
					next := s.plugin(nil)
					if r, err := next.Recover(t.Context()); err != nil || len(r.Quarantined) > 0 {
						t.Errorf("Recover = %+v, %v; want nothing quarantined", r, err)
					}
					if time.Since(begun) < takes {
						s.wantUnknown(nil)
					}
					s.wantDoneBy(next)
				})
			})
		}
	}
}

// wantDoneBy has a plugin that knows nothing of the reset that is under way try until
// it succeeds, and checks that it made one of its own for that.
func (s *slowReset) wantDoneBy(p *plugin) {
	s.t.Helper()
	err := s.try(p)
	for tries := 0; err != nil && tries < 5; tries++ {
		s.wantUnknown(err)
		time.Sleep(time.Minute) // as the kubelet does
		err = s.try(p)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	told := wantOneResetTold(s.t, s.world, ledger.OK)
	if n := len(s.k.Resets()); n != 2*len(told.Reset.Set) {
		s.t.Errorf("%d resets of %d functions, want two of each", n, len(told.Reset.Set))
	}
	s.wantDone()
}

// TestDeviceStaysWithTheClaimDuringASlowReset: other claims and a start of the plugin
// leave it alone.
func TestDeviceStaysWithTheClaimDuringASlowReset(t *testing.T) {
	eachSlowReset(t, sysfstest.NewerKernel(), func(t *testing.T, p *plugin, s *slowReset) {
		resets(s.world, s.slow, 70*time.Second, nil)
		s.wantCutOff(s.try(p))
		_, err := p.Prepare(t.Context(), s.request(other, s.dev))
		if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Held) && !refused.Has(rule.Locked) {
			t.Errorf("another claim: %v, want %s or %s", err, rule.Held, rule.Locked)
		}
		r, err := p.Recover(t.Context())
		if err != nil || len(r.Quarantined)+len(r.Unfinished) > 0 {
			t.Errorf("Recover = %+v, %v; want nothing quarantined or unfinished", r, err)
		}
		if rec := s.record(uid); s.during == journal.Prepared && rec == nil || s.during != journal.Prepared && rec != nil {
			t.Errorf("record %+v after a start that waits for the reset, want one: %t", rec, s.during == journal.Prepared)
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

// TestRefusedAfterASlowReset: what has come between counts, although the reset had
// begun: the claim is refused, and taken back.
func TestRefusedAfterASlowReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.markUnclean(gpu)
		before := w.state()
		p := w.plugin(nil)
		resets(w, gpu, 70*time.Second, nil)
		prepareIt := func(ctx context.Context) error {
			_, err := p.Prepare(ctx, w.request(uid, gpu))
			return err
		}
		as[*bind.UnfinishedError](t, patiently(t, prepareIt))
		w.mustDrain(gpu)
		if refused := wantRefused(t, patiently(t, prepareIt)); refused == nil || !refused.Has(rule.Drained) {
			t.Errorf("refused: %+v, want %s", refused, rule.Drained)
		}
		w.unchanged(before)
		if marks := w.unclean(); len(marks) != 1 {
			t.Errorf("marked: %v, want %s", marks, gpu)
		}
	})
}
