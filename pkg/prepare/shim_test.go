package prepare_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// shimPID and the ones behind it are of processes that no machine has.
const shimPID = nobody + 100

func shim() journal.Process {
	return journal.Process{PID: shimPID, StartTime: sysfstest.StartTime(shimPID)}
}

// asked prepares a claim on a GPU and hands it to the shim of the sandbox "first", whose
// VM has not opened it yet.
func asked(t *testing.T) (*world, pci.Address) {
	t.Helper()
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.askFor(gpu)
	return w, gpu
}

// askFor prepares a claim on a function, and hands it to the shim of the sandbox "first".
func (w *world) askFor(a pci.Address) {
	w.t.Helper()
	w.mustPrepare(w.request(uid, a))
	w.k.Run(sysfstest.Process{PID: shimPID, Comm: "containerd-shim", Group: shimPID})
	w.tellHandOver(journal.Sandbox{ID: "first", Shim: shim()})
}

// tellHandOver hands the claim's functions over, or tells more of the sandbox that has them.
func (w *world) tellHandOver(to journal.Sandbox) {
	w.t.Helper()
	if err := w.plugin(nil).HandOver(w.t.Context(), uid, to); err != nil {
		w.t.Fatal(err)
	}
}

// takingCalls are all that take a device from a sandbox.
func takingCalls() map[string]func(*world) error {
	return map[string]func(*world) error{
		"Unprepare": func(w *world) error {
			_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
			return err
		},
		"HandOver to a second sandbox": func(w *world) error {
			return w.plugin(nil).HandOver(w.t.Context(), uid, journal.Sandbox{ID: "second"})
		},
		"Renew": func(w *world) error {
			_, err := w.plugin(nil).Renew(w.t.Context(), uid, "first")
			return err
		},
		"Unprepare after a restart": func(w *world) error {
			if _, err := w.plugin(nil).Recover(w.t.Context()); err != nil {
				return err
			}
			_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
			return err
		},
		"Clear of a quarantine": func(w *world) error {
			w.saveQuarantined()
			_, err := w.plugin(nil).Clear(w.t.Context(), uid, maintain.Clearance{Reason: "test", WithoutProof: true})
			return err
		},
		"a claim that is allocated again": func(w *world) error {
			other := pci.Address{Bus: 0x3c}
			if _, there := w.bindings()[other]; !there {
				w.k.AddGPU(0x3c)
			}
			_, err := w.plugin(nil).Prepare(w.t.Context(), w.request(uid, other))
			return err
		},
	}
}

// saveQuarantined has the claim's record say that its functions are not clean.
func (w *world) saveQuarantined() {
	w.t.Helper()
	rec := *w.record(uid)
	rec.State, rec.Reason = journal.Quarantined, "test"
	if err := w.records.Save(&rec); err != nil {
		w.t.Fatal(err)
	}
}

// TestHandedOverAndNotYetOpened: between a sandbox's answer and the VM's open nobody has
// the device open, and it is the sandbox's all the same.
func TestHandedOverAndNotYetOpened(t *testing.T) {
	for name, call := range takingCalls() {
		t.Run(name, func(t *testing.T) {
			w, gpu := asked(t)
			bound := w.bindings()[gpu]
			err := call(w)
			used := as[*effects.InUseError](t, err)
			if used.Address != gpu || len(used.Holders) != 1 || used.Holders[0].PID != shimPID {
				t.Errorf("in use: %+v, want %s by process %d", used, gpu, shimPID)
			}
			says(t, err, "containerd-shim (pid 4194405", "starts a sandbox with it")
			if rec := w.record(uid); rec == nil || rec.Sandbox == nil || rec.Sandbox.ID != "first" {
				t.Errorf("record %+v, want it with the first sandbox", rec)
			}
			if n, now := len(w.k.Resets()), w.bindings()[gpu]; n != 0 || now != bound {
				t.Errorf("%d resets, %+v; want none and the binding %+v", n, now, bound)
			}
			w.k.Kill(shimPID)
			if err := call(w); err != nil {
				t.Errorf("after the shim's end: %v, want nil", err)
			}
		})
	}
}

// TestShimStartsSandbox: a process belongs to the sandbox if the shim of this boot started it.
func TestShimStartsSandbox(t *testing.T) {
	const qemu = shimPID + 1
	for name, c := range map[string]struct {
		change func(*world)
		held   int // PID; 0 for none
	}{
		"a child of the shim's child": {held: qemu + 1, change: func(w *world) {
			w.k.Run(sysfstest.Process{PID: qemu, Comm: "sh", Parent: shimPID})
			w.k.Run(sysfstest.Process{PID: qemu + 1, Comm: "qemu", Parent: qemu})
		}},
		"a process that outlived the shim": {held: qemu, change: func(w *world) {
			w.k.Run(sysfstest.Process{PID: qemu, Comm: "qemu", Group: shimPID})
			w.k.Kill(shimPID)
		}},
		"another process with the shim's PID": {change: func(w *world) {
			w.k.Run(sysfstest.Process{PID: shimPID, Comm: "bash", Group: shimPID, Start: 1 << 40})
			w.k.Run(sysfstest.Process{PID: qemu, Comm: "sh", Parent: shimPID, Group: shimPID})
		}},
		"another sandbox's": {change: func(w *world) {
			w.k.Kill(shimPID)
			w.k.Run(sysfstest.Process{PID: qemu, Comm: "qemu", Group: qemu})
		}},
		"a shim whose VM runs": {change: func(w *world) {
			w.tellHandOver(journal.Sandbox{ID: "first", VMM: journal.Process{PID: qemu, StartTime: 7}})
		}},
		"a sandbox that is gone": {change: func(w *world) {
			rec := *w.record(uid)
			rec.Sandbox = nil
			if err := w.records.Save(&rec); err != nil {
				w.t.Fatal(err)
			}
		}},
		"the PID after a restart of the node": {change: func(w *world) {
			w.k.Reboot()
			w.k.Run(sysfstest.Process{PID: shimPID, Comm: "bash"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := asked(t)
			c.change(w)
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if c.held == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if used := as[*effects.InUseError](t, err); used.Holders[len(used.Holders)-1].PID != c.held {
				t.Errorf("in use: %+v, want process %d last", used, c.held)
			}
		})
	}
}

// TestShimIsKept when its sandbox is handed over again without it.
func TestShimIsKept(t *testing.T) {
	w, _ := asked(t)
	w.tellHandOver(journal.Sandbox{ID: "first", NetNS: "/run/netns/first"})
	if got := w.record(uid).Sandbox.Shim; got != shim() {
		t.Errorf("shim %+v, want %+v", got, shim())
	}
}

// TestDrainWaitsForAHandedOverDevice that nobody has opened yet: the claim's record holds
// it, and the drain takes it from nobody before the claim has ended.
func TestDrainWaitsForAHandedOverDevice(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprintf("bound by policy: %t", bound), func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			home := w.driver(gpu)
			if bound {
				w.boundByPolicy()
			}
			w.askFor(gpu)
			if state := w.mustDrain(gpu); state.Done() || state.Due() || len(state.Holders) != 1 {
				t.Errorf("drain: %+v, want it to wait for the claim", state)
			}
			if _, err := w.plugin(nil).FinishDrains(t.Context()); err != nil {
				t.Error(err)
			}
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			as[*effects.InUseError](t, err)
			if state := w.mustDrain(gpu); state.Done() || w.driver(gpu) != "vfio-pci" || len(w.k.Resets()) > 0 {
				t.Errorf("after a refused Unprepare: %+v, driver %s, resets %v; want it not done, vfio-pci, no reset", state, w.driver(gpu), w.k.Resets())
			}
			w.k.Kill(shimPID)
			w.mustUnprepare(uid)
			if state := w.mustDrain(gpu); !state.Done() || w.driver(gpu) != home {
				t.Errorf("after the claim's end: %+v, driver %s; want it done and driver %s", state, w.driver(gpu), home)
			}
		})
	}
}

// sandboxID is of a sandbox as the runtimes name them.
const sandboxID = "b5d0f7c5a5f1d1c4ed2a8b0fb8c1d5a4be5dbcf17d5d6bd4a6cf1bb6d8a0aa51"

// TestRecordWithoutItsShim, as plugins before it was kept have left it: the sandbox's shim
// is found by its bundle, so that an upgrade in the middle of a sandbox's start takes
// nothing from it.
func TestRecordWithoutItsShim(t *testing.T) {
	for name, call := range takingCalls() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			w.k.Run(sysfstest.Process{
				PID: shimPID, Comm: "containerd-shim", Group: shimPID, Dir: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/first",
			})
			w.tellHandOver(journal.Sandbox{ID: "first"})
			if _, err := w.plugin(nil).Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := call(w)
			as[*effects.InUseError](t, err)
			says(t, err, "containerd-shim (pid 4194405", "starts a sandbox with it")
			if rec := w.record(uid); rec == nil || rec.Sandbox == nil || rec.Sandbox.ID != "first" || len(w.k.Resets()) > 0 {
				t.Errorf("record %+v, resets %v; want the sandbox's and none", rec, w.k.Resets())
			}
			w.k.Kill(shimPID)
			if err := call(w); err != nil {
				t.Errorf("after the shim's end: %v, want nil", err)
			}
		})
	}
}

// TestShimThatOutlivesItsVM, as CRI-O's does, while no NRI event names the VM: the kubelet
// has the sandbox removed only after Unprepare, so the shim alone must not hold the
// device for longer than a VM may take to be started. What it has started holds it.
func TestShimThatOutlivesItsVM(t *testing.T) {
	const qemu = shimPID + 1
	for name, s := range map[string]journal.Sandbox{
		"that is recorded": {ID: sandboxID, Shim: shim()},
		"found by its ID":  {ID: sandboxID},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.mustPrepare(w.request(uid, w.k.AddGPU(0x3b)))
				w.k.Run(sysfstest.Process{PID: shimPID, Comm: "kata-shim", Group: shimPID, Args: []string{"kata-shim", "-id", sandboxID}})
				w.tellHandOver(s)
				held := func(when string, holders ...int) {
					t.Helper()
					_, err := w.plugin(nil).Unprepare(t.Context(), uid)
					used := as[*effects.InUseError](t, err)
					if used == nil || len(used.Holders) != len(holders) {
						t.Fatalf("%s: %v, want it held by %v", when, err, holders)
					}
				}
				held("the shim has it for a moment", shimPID)
				time.Sleep(4 * time.Minute)
				held("the shim has it for 4 minutes", shimPID)
				w.k.Run(sysfstest.Process{PID: qemu, Comm: "qemu", Parent: shimPID})
				time.Sleep(time.Hour)
				held("the VM's process runs and has not opened it", shimPID, qemu)
				w.k.Kill(qemu)
				w.mustUnprepare(uid)
			})
		})
	}
}

// TestClockThatJumpsEndsNoWait: how long a sandbox has had its devices is counted from boot. A clock that is set forward
// takes no device from a shim that is about to start its VM, and one that is set back keeps no device with a shim that
// is left over.
func TestClockThatJumpsEndsNoWait(t *testing.T) {
	for name, tt := range map[string]struct {
		by, later time.Duration
		held      bool
	}{
		"forward, a second later":    {time.Hour, time.Second, true},
		"back, a second later":       {-time.Hour, time.Second, true},
		"forward, ten minutes later": {time.Hour, 10 * time.Minute, false},
		"back, ten minutes later":    {-time.Hour, 10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := asked(t)
				time.Sleep(tt.later)
				rec := *w.record(uid)
				sandbox := *rec.Sandbox
				sandbox.Since = time.Now().Add(-tt.later - tt.by).UTC().Format(time.RFC3339) // as the clock has it now
				rec.Sandbox = &sandbox
				if err := w.records.Save(&rec); err != nil {
					t.Fatal(err)
				}
				_, err := w.plugin(nil).Unprepare(t.Context(), uid)
				if effects.IsUse(err) != tt.held || err != nil && !tt.held {
					t.Errorf("Unprepare: %v; want it refused: %t", err, tt.held)
				}
			})
		})
	}
}
