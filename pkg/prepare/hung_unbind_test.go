package prepare_test

import (
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
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
		w.t.Errorf("%d resets of a device in use", n)
	}
}

// TestHungUnbindOfARunningVM: an operator's unbind waits for the VM, which runs on.
// Unprepare sees that on every kernel: nothing changes until the VM has ended.
func TestHungUnbindOfARunningVM(t *testing.T) {
	for name, locking := range kernels() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fs = w.k.Reading(w.fs, locking)
				gpu := w.k.AddGPU(0x3b)
				before := w.state()
				p := w.plugin(nil)
				if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
					t.Fatal(err)
				}
				vm := w.hold(gpu)
				w.unbindByHand(gpu)
				for range 2 {
					err := asKubelet(t, p)
					if used := as[*prepare.InUseError](t, err); len(used.Holders) != 1 || used.Holders[0].PID != vm.PID {
						t.Errorf("in use by %v, want the VM", used.Holders)
					}
					w.wantKept()
				}
				vm.Release()
				synctest.Wait()
				if err := asKubelet(t, p); err != nil {
					t.Errorf("once the VM has ended: %v", err)
				}
				w.unchanged(before)
			})
		})
	}
}

// TestHungUnbindWithoutAHolder: the driver does not let go although nobody is seen who
// has the device. Unprepare and a start of the plugin leave all as it is.
func TestHungUnbindWithoutAHolder(t *testing.T) {
	for name, locking := range kernels() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fs = w.k.Reading(w.fs, locking)
				gpu := w.k.AddGPU(0x3b)
				p := w.plugin(nil)
				if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
					t.Fatal(err)
				}
				gate := make(chan struct{})
				w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true, Remove: func(pci.Address) { <-gate }})
				w.unbindByHand(gpu)
				err := asKubelet(t, p)
				if locked := as[*prepare.LockedError](t, err); locked.Address != gpu || locked.Driver != "vfio-pci" {
					t.Errorf("locked: %+v", locked)
				}
				w.wantKept()
				if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Quarantined) > 0 {
					t.Errorf("Recover = %+v, %v", r, err)
				}
				w.wantKept()
				w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true})
				close(gate)
				synctest.Wait()
				if err := asKubelet(t, p); err != nil {
					t.Errorf("once the driver has let go: %v", err)
				}
			})
		})
	}
}
