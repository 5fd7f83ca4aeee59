package prepare_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestPrepareWithoutWriteAccess: without privileges, and on a read-only /sys, there is one
// clear error, and no trace is left.
func TestPrepareWithoutWriteAccess(t *testing.T) {
	for name, tt := range map[string]struct {
		errno unix.Errno
		words []string
	}{
		"no root":       {unix.EACCES, []string{"permission denied", "run as root with the host's /sys"}},
		"read-only sys": {unix.EROFS, []string{"read-only file system", "mount it read-write", "privileged"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			before := w.state()
			w.k.Refuse(tt.errno)
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
			says(t, err, append(tt.words, "unbind 0000:3b:00.0 from nvidia", "/sys/bus/pci/drivers/nvidia/unbind")...)
			if n := strings.Count(err.Error(), tt.words[0]); n != 1 {
				t.Errorf("the cause is there %d times, want once: %v", n, err)
			}
			w.unchanged(before)
		})
	}
}

// TestPrepareWithEachStepRefused lets each kind of write fail with EBUSY, on the
// way in only, and checks that what was done before it is taken back.
func TestPrepareWithEachStepRefused(t *testing.T) {
	for name, is := range map[string]func(path, value string) bool{
		"unbind":   func(path, _ string) bool { return unbinds(path) },
		"override": func(path, value string) bool { return sets(path) && value != "\n" },
		"probe":    func(path, _ string) bool { return probes(path) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu, _ := w.k.AddGPUWithAudio(0x62, 15)
			before := w.state()
			var busy atomic.Bool
			busy.Store(true)
			w.k.OnWrite(func(path, value string) error {
				if is(path, value) && busy.Swap(false) {
					return unix.EBUSY
				}
				return nil
			})
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
			says(t, err, name, "0000:62:00.", "device or resource busy")
			as[*bind.StepError](t, err)
			w.unchanged(before)
		})
	}
}

// TestProbeMatchesNothing: the kernel accepts the probe and no driver comes.
func TestProbeMatchesNothing(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	w.k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true, Probe: func(pci.Address) error { return unix.ENODEV }})
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
	says(t, err, "probe 0000:3b:00.0 for vfio-pci", "no driver took it", "module")
	w.unchanged(before)
}

// takeBack makes udev of the node: whenever the function is without a driver,
// it offers it to the drivers, at most so often.
func takeBack(w *world, gpu pci.Address, times int32) {
	var left atomic.Int32
	left.Store(times)
	w.k.AfterWrite(func(path, value string) {
		if unbinds(path) && strings.Contains(path, "/nvidia/") && value == gpu.String() && left.Add(-1) >= 0 {
			_ = w.k.Write("sys/bus/pci/drivers_probe", []byte(value)) // udev reads no errors
		}
	})
}

// TestDriverTakesTheFunctionBackOnce: udev gives the function back to the
// driver that has just lost it. Prepare gets over it.
func TestDriverTakesTheFunctionBackOnce(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	takeBack(w, gpu, 1)
	w.mustPrepare(w.request(uid, gpu))
	if now := w.bindings()[gpu]; now.Driver != "vfio-pci" {
		t.Errorf("bound to %q, want vfio-pci", now.Driver)
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
}

// TestDriverAlwaysTakesTheFunctionBack: the error names the driver and the way
// out, and the function is where it was.
func TestDriverAlwaysTakesTheFunctionBack(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	takeBack(w, gpu, 1<<30)
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
	if taken := as[*bind.TakenError](t, err); taken.Driver != "nvidia" {
		t.Errorf("taken by %q, want nvidia", taken.Driver)
	}
	says(t, err, "0000:3b:00.0", "nvidia", "blacklist")
	w.unchanged(before)
}

// TestLateModuleLoad: a module comes in just when its device has no driver,
// on the way in and on the way out.
func TestLateModuleLoad(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	var once atomic.Bool
	w.k.AfterWrite(func(path, value string) {
		if unbinds(path) && once.CompareAndSwap(false, true) {
			w.k.AddDriver("nouveau", sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchID(0x10de, 0x2330)}})
		}
	})
	rec := w.mustPrepare(w.request(uid, gpu))
	want := plan.Binding{Driver: "nvidia"}
	if got := rec.Plan.Functions[0].Original; got != want {
		t.Errorf("original binding %+v, want %+v", got, want)
	}
	if now := w.bindings()[gpu]; now.Driver != "vfio-pci" {
		t.Errorf("bound to %q, want vfio-pci", now.Driver)
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
}

// TestDriverUnloadedMeanwhile: the original driver is gone on the way out. Its
// module is loaded again; where there is none, the claim stays, clean, and the
// next try goes on once the module is there, with no second reset.
func TestDriverUnloadedMeanwhile(t *testing.T) {
	nvidia := sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchID(0x10de, 0x2330)}}
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	w.mustPrepare(w.request(uid, gpu))
	w.k.RemoveDriver("nvidia")
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	says(t, err, "0000:3b:00.0", "nvidia", "load module nvidia")
	if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned || rec.Reason == "" {
		t.Fatalf("record %+v, want one that is cleaned, with the reason", rec)
	}
	w.k.AddModule("nvidia", nvidia)
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
	if n := len(w.k.Resets()); n != 1 {
		t.Errorf("%d resets, want the one that was proven", n)
	}
}
