package prepare_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestRecoverOfSlowResets: the power of a GPU board fails, and each reset waits in the kernel for a minute. The plugin restarts.
// It recovers them side by side, and the claims of healthy devices are served meanwhile.
func TestRecoverOfSlowResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit = 20 * time.Second
		healthy, free := w.k.AddGPU(0x20), w.k.AddGPU(0x21)
		w.mustPrepare(w.request("healthy", healthy))
		for i := range 8 {
			gpu, id := w.k.AddGPU(uint8(0x30+i)), fmt.Sprint("claim-", i)
			w.mustPrepare(w.request(id, gpu))
			rec := *w.record(id)
			rec.State = journal.Releasing // the first plugin was killed there
			if err := w.records.Save(&rec); err != nil {
				t.Fatal(err)
			}
			resets(w, gpu, time.Minute, unix.ENOTTY)
		}
		p, start := w.plugin(nil), time.Now()
		recovered := make(chan error)
		go func() {
			_, err := p.Recover(t.Context())
			recovered <- err
		}()
		time.Sleep(time.Second)
		for id, gpu := range map[string]pci.Address{"healthy": healthy, "new": free} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := p.Prepare(ctx, w.request(id, gpu)); err != nil {
				t.Errorf("claim %s during the recovery: %v, want nil", id, err)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Unprepare(ctx, "claim-3"); err == nil {
			t.Error("a claim is unprepared while its recovery has its lock")
		}
		if err := <-recovered; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("it took %s, want little more than one reset", took)
		}
	})
}

// TestRecoverOfAFullNode: 64 claims, whose resets take a minute each, are recovered 16 at a time: in the time of four resets.
func TestRecoverOfAFullNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit, w.recover = 2*time.Minute, 10*time.Minute
		var mu sync.Mutex // guards both
		resetting, most := 0, 0
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			resetting += by
			most = max(most, resetting)
		}
		gpus := make([]pci.Address, 64)
		for i := range gpus {
			gpus[i] = w.k.AddGPU(uint8(0x30 + i))
		}
		w.watch(&staleness{}) // a scan of so many functions for each step would take seconds
		all := w.request("all", gpus...)
		for i, gpu := range gpus {
			one := *all
			one.UID, one.Name, one.Devices = fmt.Sprint("claim-", i), fmt.Sprint("claim-", i), all.Devices[i:i+1]
			w.mustPrepare(&one)
			rec := *w.record(one.UID)
			rec.State = journal.Releasing
			if err := w.records.Save(&rec); err != nil {
				t.Fatal(err)
			}
			w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
				count(1)
				defer count(-1)
				time.Sleep(time.Minute)
				return sysfstest.ResetWorks, nil
			})
		}
		start := time.Now()
		r, err := w.plugin(nil).Recover(t.Context())
		if err != nil || len(r.Released) != 64 || len(r.Unfinished) != 0 {
			t.Errorf("got %d of 64 claims released, unfinished %v, error %v; want all", len(r.Released), r.Unfinished, err)
		}
		if took := time.Since(start); most != 16 || took < 4*time.Minute || took > 5*time.Minute {
			t.Errorf("got %d resets at a time and %s in all, want 16 and little more than 4m", most, took)
		}
	})
}

// TestEarlierBootsDevicesAreNotClean: a claim that is prepared before the recovery of an earlier boot's claim has the devices
// reset first. That claim's lock may be held by a process that hangs in the kernel.
func TestEarlierBootsDevicesAreNotClean(t *testing.T) {
	for _, state := range []journal.State{journal.Preparing, journal.Prepared, journal.Releasing} {
		t.Run(string(state), func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(other, gpu))
			rec := *w.record(other)
			rec.State = state
			if err := w.records.Save(&rec); err != nil {
				t.Fatal(err)
			}
			w.k.Reboot()
			unlock, err := w.locks.Acquire(t.Context(), journal.Lock{Name: "claim-" + other})
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			p := w.plugin(nil)
			if err := p.MarkEarlier(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
				t.Fatal(err)
			}
			if rec := w.record(uid); len(rec.Plan.ResetsBefore) != 1 || len(rec.Proofs) != 1 {
				t.Errorf("resets before the tenant %v, proofs %v; want one", rec.Plan.ResetsBefore, rec.Proofs)
			}
		})
	}
}

// countedMarks counts the calls that mark functions as not clean.
type countedMarks struct {
	effects.Journal
	calls int
}

func (c *countedMarks) MarkNeedsReset(ctx context.Context, all ...journal.ResetMark) error {
	c.calls++
	return c.Journal.MarkNeedsReset(ctx, all...)
}

// TestEarlierBootsDevicesAreMarkedTogether: the node's pods wait for the marks.
func TestEarlierBootsDevicesAreMarkedTogether(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.mustPrepare(w.request(fmt.Sprint("claim-", i), w.k.AddGPU(uint8(0x30+i))))
	}
	w.k.Reboot()
	counted := &countedMarks{Journal: w.records}
	if err := w.plugin(nil, func(c *prepare.Config) { c.Parts.Journal = counted }).MarkEarlier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if marked := w.unclean(); counted.calls != 1 || len(marked) != 3 {
		t.Errorf("%d calls marked %v, want one call and three GPUs", counted.calls, marked)
	}
}
