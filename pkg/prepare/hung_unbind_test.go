package prepare_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// kernels are the ways in which kernels show attributes while a device lock is held.
func kernels() map[string]sysfstest.LockingReads {
	return map[string]sysfstest.LockingReads{
		"driver_override under the lock":                  sysfstest.OlderKernel(),
		"driver_override and sriov_numvfs under the lock": sysfstest.MiddleKernel(),
		"neither under the lock":                          sysfstest.NewerKernel(),
	}
}

// onEachKernel runs a test on a world of each of the [kernels], in time of its own.
func onEachKernel(t *testing.T, run func(t *testing.T, w *world)) {
	t.Helper()
	for name, locking := range kernels() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fs = w.k.Reading(w.fs, locking)
				run(t, w)
			})
		})
	}
}

// unbindByHand has an operator unbind the function from vfio-pci, without a look at
// who uses it.
func (w *world) unbindByHand(a pci.Address) {
	go func() { _ = w.k.Write("sys/bus/pci/drivers/vfio-pci/unbind", []byte(a.String())) }()
	synctest.Wait()
}

// wantKept checks that a claim is as it was: prepared, with its CDI spec, and its
// device not reset.
func (w *world) wantKept() {
	w.t.Helper()
	if rec := w.record(uid); rec == nil || rec.State != journal.Prepared || !w.hasSpec(uid) {
		w.t.Errorf("record %+v, CDI spec: %t; want both as they were", rec, w.hasSpec(uid))
	}
	if n := len(w.k.Resets()); n > 0 {
		w.t.Errorf("%d resets of a device in use, want none", n)
	}
}

// TestHungUnbindOfARunningVM: an operator's unbind waits for the VM, which runs on.
// Unprepare sees that on every kernel: nothing changes until the VM has ended.
func TestHungUnbindOfARunningVM(t *testing.T) {
	onEachKernel(t, func(t *testing.T, w *world) {
		gpu := w.k.AddGPU(0x3b)
		before := w.state()
		w.mustPrepare(w.request(uid, gpu))
		p := w.plugin(nil)
		vm := w.hold(gpu)
		w.unbindByHand(gpu)
		for range 2 {
			err := asKubelet(t, p)
			if used := as[*effects.InUseError](t, err); len(used.Holders) != 1 || used.Holders[0].PID != vm.PID {
				t.Errorf("in use by %v, want the VM", used.Holders)
			}
			w.wantKept()
		}
		vm.Release()
		synctest.Wait()
		if err := asKubelet(t, p); err != nil {
			t.Errorf("once the VM has ended: %v, want nil", err)
		}
		w.unchanged(before)
	})
}

// TestHungUnbindWithoutAHolder: the driver does not let go although nobody is seen who
// has the device. Unprepare and a start of the plugin leave all as it is.
func TestHungUnbindWithoutAHolder(t *testing.T) {
	onEachKernel(t, func(t *testing.T, w *world) {
		gpu := w.k.AddGPU(0x3b)
		w.mustPrepare(w.request(uid, gpu))
		p := w.plugin(nil)
		gate := make(chan struct{})
		w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true, Remove: func(pci.Address) { <-gate }})
		w.unbindByHand(gpu)
		err := asKubelet(t, p)
		if locked := as[*effects.LockedError](t, err); locked.Address != gpu || locked.Driver != "vfio-pci" {
			t.Errorf("locked: %+v, want %s by vfio-pci", locked, gpu)
		}
		w.wantKept()
		if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Quarantined) > 0 {
			t.Errorf("Recover = %+v, %v; want nothing quarantined", r, err)
		}
		w.wantKept()
		w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true})
		close(gate)
		synctest.Wait()
		if err := asKubelet(t, p); err != nil {
			t.Errorf("once the driver has let go: %v, want nil", err)
		}
	})
}

// lateLocks has something happen while a call waits for the lock of an IOMMU group.
type lateLocks struct {
	effects.Locks
	meanwhile func()
}

func (l lateLocks) Acquire(ctx context.Context, locks ...effects.Lock) (func(), error) {
	if len(locks) > 0 && strings.HasPrefix(locks[0].Name, "group-") {
		l.meanwhile()
	}
	return l.Locks.Acquire(ctx, locks...)
}

// TestHungUnbindThatBeginsBeforeTheLock: what a call has seen before it waited for a
// lock counts for nothing once it has it.
func TestHungUnbindThatBeginsBeforeTheLock(t *testing.T) {
	onEachKernel(t, func(t *testing.T, w *world) {
		gpu := w.k.AddGPU(0x3b)
		w.mustPrepare(w.request(uid, gpu))
		p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Locks = lateLocks{c.Parts.Locks, func() { w.unbindByHand(gpu) }} })
		gate := make(chan struct{})
		w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true, Remove: func(pci.Address) { <-gate }})
		as[*effects.LockedError](t, asKubelet(t, p))
		w.wantKept()
		close(gate)
	})
}

// TestHungRemovalOfVFsOfARunningVM: an operator takes the PF's VFs away, which waits for
// the VM that has one. Nothing changes until the VM has ended, and then the claim ends.
func TestHungRemovalOfVFsOfARunningVM(t *testing.T) {
	onEachKernel(t, func(t *testing.T, w *world) {
		pf, vfs := w.k.AddNIC(0x21, 2)
		w.mustPrepare(w.request(uid, vfs[1]))
		p := w.plugin(nil)
		vm := w.hold(vfs[1])
		go func() { _ = w.k.Write("sys/bus/pci/devices/"+pf.String()+"/sriov_numvfs", []byte("0")) }()
		synctest.Wait()
		for range 2 {
			if used := as[*effects.InUseError](t, asKubelet(t, p)); used.Address != vfs[1] {
				t.Errorf("in use: %s, want %s", used.Address, vfs[1])
			}
			w.wantKept()
		}
		vm.Release()
		synctest.Wait()
		if err := asKubelet(t, p); err != nil {
			t.Errorf("once the VM has ended: %v, want nil", err)
		}
		if rec := w.record(uid); rec != nil || w.hasSpec(uid) {
			t.Errorf("record %+v, CDI spec: %t; want none", rec, w.hasSpec(uid))
		}
	})
}

// TestHungBindOnTheWayBack: the host's driver hangs in its probe. The device is proven
// clean by then: nobody resets it again, and it is not quarantined, also by a plugin
// that starts meanwhile.
func TestHungBindOnTheWayBack(t *testing.T) {
	onEachKernel(t, func(t *testing.T, w *world) {
		gpu := w.k.AddGPU(0x3b)
		before := w.state()
		w.mustPrepare(w.request(uid, gpu))
		p := w.plugin(nil)
		gate := make(chan struct{})
		w.k.AddDriver("nvidia", sysfstest.Driver{Probe: func(pci.Address) error {
			<-gate
			return nil
		}})
		as[*control.StuckError](t, asKubelet(t, p))
		if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Quarantined) > 0 {
			t.Errorf("Recover = %+v, %v; want nothing quarantined", r, err)
		}
		if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned {
			t.Errorf("record %+v, want one that is cleaned", rec)
		}
		close(gate)
		synctest.Wait()
		if err := asKubelet(t, p); err != nil {
			t.Errorf("once the driver has it: %v, want nil", err)
		}
		w.unchanged(before)
		if n := len(w.k.Resets()); n != 1 {
			t.Errorf("%d resets, want one", n)
		}
	})
}
