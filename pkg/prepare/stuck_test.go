package prepare_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// hang makes every unbind of the function hang in its driver until the
// returned function is called.
func hang(w *world, a pci.Address) (letGo func()) {
	gate := make(chan struct{})
	w.k.OnWrite(func(path, value string) error {
		if unbinds(path) && value == a.String() {
			<-gate
		}
		return nil
	})
	return sync.OnceFunc(func() { close(gate) })
}

// kubelet is how long the kubelet waits for an answer.
const kubelet = 45 * time.Second

// TestHangingUnbindOnTheWayIn: a host driver does not let go. The claim gets an
// error within the kubelet's patience, another claim goes on meanwhile, and
// once the driver has let go the next try succeeds.
func TestHangingUnbindOnTheWayIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stuck, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
		p := w.plugin(nil, func(c *prepare.Config) { c.UndoLimit = w.limit })
		letGo := hang(w, stuck)
		start := time.Now()
		failed := make(chan error)
		go func() {
			_, err := p.Prepare(t.Context(), w.request(uid, stuck))
			failed <- err
		}()
		synctest.Wait() // it hangs
		if _, err := p.Prepare(t.Context(), w.request(other, free)); err != nil {
			t.Errorf("another claim, meanwhile: %v, want nil", err)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the other claim waited %s, want no wait", took)
		}
		err := <-failed
		if took := time.Since(start); took > kubelet {
			t.Errorf("the error came after %s, want at most %s", took, kubelet)
		}
		if e := as[*control.StuckError](t, err); e.Address != stuck {
			t.Errorf("stuck: %s, want %s", e.Address, stuck)
		}
		as[*prepare.UndoError](t, err)
		says(t, err, "0000:3b:00.0", "/sys/bus/pci/drivers/nvidia/unbind", "has not answered", "next try")
		if rec := w.record(uid); rec == nil || rec.State != journal.Preparing || rec.Reason == "" {
			t.Errorf("record %+v, want one that knows what is left to do", rec)
		}
		letGo()
		synctest.Wait()
		if _, err := p.Prepare(t.Context(), w.request(uid, stuck)); err != nil {
			t.Errorf("once it has let go: %v, want nil", err)
		}
	})
}

// TestHangingUnbindWhileItHangs: the kubelet's next tries, while the driver
// still does not let go, end in time too and name the write that hangs.
func TestHangingUnbindWhileItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		before := w.state()
		p := w.plugin(nil)
		letGo := hang(w, gpu)
		for range 3 {
			start := time.Now()
			ctx, cancel := timeout(t, kubelet)
			_, err := p.Prepare(ctx, w.request(uid, gpu))
			cancel()
			as[*control.StuckError](t, err)
			if took := time.Since(start); took > kubelet {
				t.Errorf("the error came after %s, want at most %s", took, kubelet)
			}
		}
		letGo()
		if _, err := p.Unprepare(t.Context(), uid); err != nil {
			t.Error(err)
		}
		w.unchanged(before)
	})
}

// TestHolderAppearsBeforeTheUnbind: between the look for holders and the unbind
// a process opens the VFIO group, so that the unbind hangs in the kernel.
// Unprepare says so in time; when the process is gone the next one finishes,
// without a second reset.
func TestHolderAppearsBeforeTheUnbind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		before := w.state()
		p := w.plugin(nil)
		if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
			t.Fatal(err)
		}
		var h *sysfstest.Holder
		w.k.OnWrite(func(path, _ string) error {
			if unbinds(path) && h == nil {
				h = w.hold(gpu)
			}
			return nil
		})
		ctx, cancel := timeout(t, kubelet)
		defer cancel()
		_, err := p.Unprepare(ctx, uid)
		as[*control.StuckError](t, err)
		says(t, err, "0000:3b:00.0", "unbind", "a process that has the function's VFIO device open must close it")
		if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned {
			t.Errorf("record %+v, want one that is cleaned", rec)
		}
		h.Release()
		synctest.Wait()
		if _, err := p.Unprepare(t.Context(), uid); err != nil {
			t.Errorf("once the process is gone: %v, want nil", err)
		}
		w.unchanged(before)
		if n := len(w.k.Resets()); n != 1 {
			t.Errorf("%d resets, want the one that was proven", n)
		}
	})
}

// lockedInventory sees a function while somebody else's unbind hangs, as after
// its driver's link is gone.
type lockedInventory struct {
	effects.Inventory
	locked pci.Address
}

func (i lockedInventory) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	snap, err := i.Inventory.Refresh(ctx, addrs)
	if f, ok := snap.Function(i.locked); ok {
		f.Locked, f.Driver = true, ""
	}
	return snap, err
}

func (i lockedInventory) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return i.Refresh(ctx, addrs)
}

// TestUnprepareWhileSomebodysUnbindHangs: it waits for the process that has the device open,
// which nobody can see. No reset is begun, nothing changes, and a later try does it.
func TestUnprepareWhileSomebodysUnbindHangs(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Inventory = lockedInventory{c.Parts.Inventory, gpu} })
	_, err := p.Unprepare(t.Context(), uid)
	if e := as[*effects.LockedError](t, err); e.Address != gpu {
		t.Errorf("locked: %s, want %s", e.Address, gpu)
	}
	says(t, err, "hangs in the kernel", "delete its pod")
	if rec := w.record(uid); rec == nil || rec.State != journal.Prepared || !w.hasSpec(uid) {
		t.Errorf("record %+v, CDI spec: %t; want both as they were", rec, w.hasSpec(uid))
	}
	w.mustUnprepare(uid)
}
