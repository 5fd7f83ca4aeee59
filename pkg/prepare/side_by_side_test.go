package prepare_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// timeout returns the test's context with a deadline.
func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// TestEightClaimsBindSideBySide: with a kernel that takes 100 ms for a write,
// eight claims on eight GPUs take as long as one.
func TestEightClaimsBindSideBySide(t *testing.T) {
	took := func(claims int) (total time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			p := w.plugin(nil)
			var gpus []pci.Address
			for i := range claims {
				gpus = append(gpus, w.k.AddGPU(uint8(0x30+i)))
			}
			w.k.OnWrite(func(string, string) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			})
			start := time.Now()
			var wg sync.WaitGroup
			for i, gpu := range gpus {
				req := w.request("claim-"+strconv.Itoa(i), gpu)
				wg.Go(func() {
					if _, err := p.Prepare(t.Context(), req); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			total = time.Since(start)
		})
		return total
	}
	one, eight := took(1), took(8)
	t.Logf("one claim %s, eight claims %s", one, eight)
	if one < 300*time.Millisecond {
		t.Errorf("one claim took %s, want 300 ms or more: the kernel was not slow", one)
	}
	if eight > one*12/10 {
		t.Errorf("eight claims took %s, want at most 1.2 times the %s of one", eight, one)
	}
}

// TestGroupsOfAClaimBindSideBySide: so do eight GPUs of one claim.
func TestGroupsOfAClaimBindSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var gpus []pci.Address
		for i := range 8 {
			gpus = append(gpus, w.k.AddGPU(uint8(0x30+i)))
		}
		w.k.OnWrite(func(string, string) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		start := time.Now()
		w.mustPrepare(w.request(uid, gpus...))
		if took := time.Since(start); took > 400*time.Millisecond {
			t.Errorf("took %s, want at most 400 ms", took)
		}
		if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 1200*time.Millisecond {
			t.Errorf("there and back took %s, want at most 1.2 s", took)
		}
	})
}

// TestTwoInstancesOneClaim: in a rolling update the kubelet may ask both
// instances for one claim. Both give the same answer, and the function is bound
// once.
func TestTwoInstancesOneClaim(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	req := w.request(uid, gpu)
	records := make([]*journal.Record, 8)
	var wg sync.WaitGroup
	for i := range records {
		p := w.plugin(nil)
		wg.Go(func() {
			var err error
			if records[i], err = p.Prepare(t.Context(), req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, rec := range records {
		if diff := cmp.Diff(records[0], rec); diff != "" {
			t.Errorf("records differ (-want the first +got):\n%s", diff)
		}
	}
	if n := len(w.k.Writes()); n != 3 {
		t.Errorf("%d writes, want unbind, driver_override and probe once", n)
	}
}

// TestTwoInstancesReleaseOneClaim: nothing is reset while a process of the host uses the device through its own driver,
// whatever the clock says. Then it is reset once, and no instance takes the other for a process that has it.
func TestTwoInstancesReleaseOneClaim(t *testing.T) {
	w := newWorld(t)
	w.k.AddNVIDIANodes()
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.mustHandOver("first")
	rec, sandbox := *w.record(uid), *w.record(uid).Sandbox
	sandbox.Since = "2012-11-22T08:00:00Z"
	rec.Sandbox = &sandbox
	if err := w.records.Save(&rec); err != nil {
		t.Fatal(err)
	}
	w.rebind(gpu, "nvidia")
	release := func() (errs [8]error) {
		var wg sync.WaitGroup
		for i := range errs {
			p := w.plugin(nil)
			wg.Go(func() { _, errs[i] = p.Unprepare(t.Context(), uid) })
		}
		wg.Wait()
		return errs
	}
	h := w.k.Hold("/dev/nvidia0", nobody, "python3", container)
	for _, err := range release() {
		if !effects.IsUse(err) || w.driver(gpu) != "nvidia" {
			t.Errorf("in use by the host: %v, driver %q; want an error of a use, nvidia", err, w.driver(gpu))
		}
	}
	h.Release()
	for _, err := range release() {
		if err != nil {
			t.Errorf("after its end: %v, want nil", err)
		}
	}
	if n := len(w.k.Resets()); n != 1 {
		t.Errorf("%d resets, want one", n)
	}
}

// TestTwoInstancesOneFunction: claims that race for one GPU. One gets it, all
// the errors of the others name the holder.
func TestTwoInstancesOneFunction(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	var won atomic.Pointer[journal.Record]
	var wg sync.WaitGroup
	for i := range 8 {
		p, req := w.plugin(nil), w.request("claim-"+strconv.Itoa(i), gpu)
		wg.Go(func() {
			rec, err := p.Prepare(t.Context(), req)
			if err != nil {
				says(t, err, "0000:3b:00.0 is held by claim tenant-a/claim-")
				return
			}
			if first := won.Swap(rec); first != nil {
				t.Errorf("both %s and %s have the GPU, want one", first.ID(), rec.ID())
			}
		})
	}
	wg.Wait()
	if won.Load() == nil {
		t.Fatal("nobody got the GPU")
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), won.Load().ID()); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
}

// TestPrepareUnprepareAndRecoverRace: whatever comes at once, in the end the
// claim is whole or gone.
func TestPrepareUnprepareAndRecoverRace(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	_, vfs := w.k.AddNIC(0x21, 2)
	before := w.state()
	reqs := map[string][]pci.Address{uid: {gpu, vfs[0]}, other: {vfs[1]}}
	var wg sync.WaitGroup
	for id, addrs := range reqs {
		for range 3 {
			p, req := w.plugin(nil), w.request(id, addrs...)
			wg.Go(func() {
				if _, err := p.Prepare(t.Context(), req); err != nil {
					t.Errorf("Prepare: %v, want nil", err)
				}
			})
			wg.Go(func() {
				if _, err := p.Unprepare(t.Context(), id); err != nil {
					t.Errorf("Unprepare: %v, want nil", err)
				}
			})
		}
	}
	wg.Go(func() {
		if _, err := w.plugin(nil).Recover(t.Context()); err != nil {
			t.Errorf("Recover: %v, want nil", err)
		}
	})
	wg.Wait()
	for id := range reqs {
		checkWholeOrGoneOf(t, w, id)
		if _, err := w.plugin(nil).Unprepare(t.Context(), id); err != nil {
			t.Errorf("Unprepare: %v, want nil", err)
		}
	}
	w.unchanged(before)
}

// checkWholeOrGoneOf checks that a claim has both record and spec or neither.
func checkWholeOrGoneOf(t *testing.T, w *world, id string) {
	t.Helper()
	rec := w.record(id)
	if (rec != nil) != w.hasSpec(id) || rec != nil && rec.State != journal.Prepared {
		t.Errorf("claim %s: record %+v, spec %t; want both of a prepared claim, or neither", id, rec, w.hasSpec(id))
	}
}
