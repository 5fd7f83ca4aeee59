package prepare_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// TestDeviceIsNotResetBelowAHostDriver: somebody gave a prepared device back to its driver, and a process of the host
// uses it there. Nothing is reset or unbound below the process. Later it is brought back to VFIO, and reset there.
func TestDeviceIsNotResetBelowAHostDriver(t *testing.T) {
	for name, call := range takingCalls() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.k.AddNVIDIANodes()
			gpu := w.k.AddGPU(0x3b)
			w.askFor(gpu)
			w.k.Kill(shimPID)
			w.rebind(gpu, "nvidia")
			h := w.k.Hold("/dev/nvidia0", nobody, "python3", container)
			writes := len(w.k.Writes())
			used := as[*effects.InUseError](t, call(w))
			if used.Address != gpu || len(used.Holders) != 1 || used.Holders[0].PID != nobody {
				t.Errorf("in use: %+v, want the process of the host", used)
			}
			if now := lastWrites(w, writes); len(now) > 0 || w.driver(gpu) != "nvidia" {
				t.Errorf("wrote %v, driver %q; want nothing", now, w.driver(gpu))
			}
			h.Release()
			below := ""
			w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
				below, _ = w.fs.Driver(gpu)
				return sysfstest.ResetWorks, nil
			})
			if err := call(w); err != nil || !device.IsVFIO(below) {
				t.Errorf("after its end: %v, reset on driver %q; want it on VFIO", err, below)
			}
		})
	}
}

// TestMovedDeviceThatStaysOnItsHostDriver: the kernel refuses the way back to VFIO. The error says so, and the claim stays
// as it is; the next try continues. Where the DeviceClass waives resets nothing is reset, and the claim ends.
func TestMovedDeviceThatStaysOnItsHostDriver(t *testing.T) {
	for name, resets := range map[string]bool{"with resets": true, "resets are waived": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			if !resets {
				rec := *w.record(uid)
				rec.Plan.Devices[0].Resets = nil
				if err := w.records.Save(&rec); err != nil {
					t.Fatal(err)
				}
			}
			w.rebind(gpu, "nvidia")
			refuse := true
			w.k.OnWrite(func(path, _ string) error {
				if refuse && strings.HasSuffix(path, "drivers/nvidia/unbind") {
					return syscall.EBUSY
				}
				return nil
			})
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if !resets {
				if err != nil || w.record(uid) != nil || w.driver(gpu) != "nvidia" {
					t.Errorf("%v, record %v, driver %q; want that the claim ends", err, w.record(uid), w.driver(gpu))
				}
				return
			}
			if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "back from the host driver") {
				t.Errorf("%v, want that of the kernel, with what was tried", err)
			}
			w.wantKept()
			refuse = false
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil || len(w.k.Resets()) != 1 {
				t.Errorf("the next try: %v, %d resets; want nil, 1", err, len(w.k.Resets()))
			}
		})
	}
}

// askedHolders asks the scripted kernel who has a function open.
type askedHolders struct {
	effects.Holders
	k *sysfstest.Kernel
}

func (h askedHolders) Opened(ctx context.Context, f *device.Function) (string, error) {
	if !device.IsVFIO(f.Driver) {
		return "", vfio.ErrCannotAsk
	}
	_, end, err := h.k.Exclude(ctx, []pci.Address{f.Address})
	if err != nil {
		return vfio.GroupNode(*f.Group), nil
	}
	end()
	return "", nil
}

// deafHolders has no answer of the kernel.
type deafHolders struct{ effects.Holders }

func (deafHolders) Opened(context.Context, *device.Function) (string, error) {
	return "", vfio.ErrCannotAsk
}

// TestHolderThatNoProcessShows: a process has passed its open device on in a socket, or still closes it. The kernel knows
// that, so that nothing is reset, until it is closed.
func TestHolderThatNoProcessShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.mustPrepare(w.request(uid, gpu))
		h := w.k.HoldUnseen(w.groupNode(gpu))
		_, err := w.plugin(nil).Unprepare(t.Context(), uid)
		used := as[*effects.InUseError](t, err)
		if used.Address != gpu || used.Open != w.groupNode(gpu) || len(w.k.Resets()) > 0 || w.driver(gpu) != "vfio-pci" {
			t.Errorf("in use: %+v, %d resets, driver %q; want %s by %s, no reset, vfio-pci", used, len(w.k.Resets()), w.driver(gpu), gpu, w.groupNode(gpu))
		}
		deaf := func(c *prepare.Config) { c.Parts.Holders = deafHolders{c.Parts.Holders} }
		if _, err := w.plugin(nil, deaf).Unprepare(t.Context(), uid); err == nil || len(w.k.Resets()) > 0 {
			t.Errorf("a plugin that did not ask: %v, %d resets; want that the reset does not begin", err, len(w.k.Resets()))
		}
		w.wait = time.Minute
		go func() {
			time.Sleep(10 * time.Second)
			h.Release()
		}()
		if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil || len(w.k.Resets()) != 1 {
			t.Errorf("with patience: %v, %d resets; want nil, 1", err, len(w.k.Resets()))
		}
	})
}

// TestProcessThatCannotBeInspected matters only where the kernel can't be asked.
func TestProcessThatCannotBeInspected(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	blind := func(c *prepare.Config) {
		c.Parts.Holders = blindHolders{c.Parts.Holders}
	}
	_, err := w.plugin(nil, blind).Prepare(t.Context(), w.request(uid, gpu))
	if unknown, ok := errors.AsType[*vfio.UninspectableError](err); !ok || unknown.PID != nobody {
		t.Errorf("Prepare of a GPU on its host driver: %v, want the process named", err)
	}
	w.mustPrepare(w.request(uid, gpu))
	if _, err := w.plugin(nil, blind).Unprepare(t.Context(), uid); err != nil {
		t.Errorf("Unprepare, of which the kernel says that nobody has it: %v, want nil", err)
	}
}

type blindHolders struct{ effects.Holders }

func (blindHolders) Find(context.Context, []string) ([]vfio.Holder, error) {
	return nil, &vfio.UninspectableError{PID: nobody, Err: errors.New("too many open files")}
}

// TestProofIsNotOlderThanTheLastUse: a claim was proven clean and its device stayed on VFIO, where somebody could use it
// until the next call. That resets it again.
func TestProofIsNotOlderThanTheLastUse(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	rec := *w.record(uid)
	rec.State = journal.Cleaned
	if err := w.records.Save(&rec); err != nil {
		t.Fatal(err)
	}
	release, err := w.plugin(nil).Unprepare(t.Context(), uid)
	if err != nil || len(w.k.Resets()) != 1 || len(release.Proofs) != 1 {
		t.Errorf("%v, %d resets, %d proofs; want one", err, len(w.k.Resets()), len(release.Proofs))
	}
}
