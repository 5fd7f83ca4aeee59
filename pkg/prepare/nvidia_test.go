package prepare_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestSharedNodesPinAGPU: whoever has one of the nodes open that NVIDIA's driver has
// for all GPUs may use this one, and its unbind would wait for that in the kernel.
// Prepare writes nothing, names the process, and succeeds when it has ended.
func TestSharedNodesPinAGPU(t *testing.T) {
	for _, node := range []string{
		"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
		"/dev/nvidia-caps/nvidia-cap1",
	} {
		t.Run(node, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			w.k.AddNVIDIANodes()
			before, writes := w.state(), len(w.k.Writes())
			h := w.k.Hold(node, nobody, "nv-hostengine", container)
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
			as[*effects.InUseError](t, err)
			says(t, err, gpu.String(), "nv-hostengine (pid")
			if node != "/dev/nvidia0" {
				says(t, err, "may use each of its GPUs", "policy: bound")
			}
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
			h.Release()
			w.unchanged(before)
			w.mustPrepare(w.request(uid, gpu))
		})
	}
}

// TestAnotherGPUsNodePinsNothing: a process that has the node of another GPU, and none
// of the shared ones, can't use this one. Nor do shared nodes matter for a GPU that
// the driver does not have.
func TestAnotherGPUsNodePinsNothing(t *testing.T) {
	w := newWorld(t)
	gpu, bound := w.k.AddGPU(0x3b), w.k.AddGPU(0x41)
	w.k.AddGPU(0x51)
	w.k.AddNVIDIANodes()
	w.mustPrepare(w.request(other, bound))
	w.k.Hold("/dev/nvidia2", nobody, "train", container)
	w.mustPrepare(w.request(uid, gpu))
	w.k.Hold("/dev/nvidiactl", nobody+1, "smi", container)
	w.mustUnprepare(other)
}

// lateUser has a process come when the ledger has the claim: after the look for
// holders, before the first step.
type lateUser struct {
	effects.Ledger
	come func()
}

func (l lateUser) AppendSoon(ctx context.Context, events ...ledger.Event) error {
	if events[0].Type == ledger.Prepare {
		l.come()
	}
	return l.Ledger.AppendSoon(ctx, events...)
}

// TestUserComesBeforeTheUnbind: Prepare looks again right before the write, and takes
// back what it has done.
func TestUserComesBeforeTheUnbind(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.k.AddNVIDIANodes()
	before := w.state()
	holds := sync.OnceFunc(func() { w.k.Hold("/dev/nvidia-uvm", nobody, "train", container) })
	p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Ledger = lateUser{c.Parts.Ledger, holds} })
	_, err := p.Prepare(t.Context(), w.request(uid, gpu))
	as[*effects.InUseError](t, err)
	for _, write := range w.k.Writes() {
		if unbinds(write.Path) {
			t.Errorf("wrote %+v, want no unbind", write)
		}
	}
	w.unchanged(before)
}

// TestDriverThatNeverLetsGo: the unbind from NVIDIA's driver does not end. Every
// error says what helps: at last a restart of the node.
func TestDriverThatNeverLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		w.k.AddNVIDIANodes()
		gate := make(chan struct{})
		defer close(gate)
		w.k.AddDriver("nvidia", sysfstest.Driver{Remove: func(pci.Address) { <-gate }})
		p := w.plugin(nil)
		_, err := p.Prepare(t.Context(), w.request(uid, gpu))
		as[*control.StuckError](t, err)
		says(t, err, "drivers/nvidia/unbind", "versions 595", "restart the node")
		_, err = w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
		as[*effects.LockedError](t, err)
		says(t, err, gpu.String(), "from driver nvidia hangs", "restart the node")
		_, err = p.Prepare(t.Context(), w.request(other, gpu))
		if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Locked) {
			t.Errorf("another claim: %v, want %s", err, rule.Locked)
		}
		says(t, err, "from driver nvidia hangs", "restart the node")
	})
}

// TestModesetPinsADisplay: with nvidia_drm's modeset the driver itself uses a GPU that
// has a display engine. Others are let go.
func TestModesetPinsADisplay(t *testing.T) {
	w := newWorld(t)
	w.k.AddRootPort(0x3b)
	display := sysfstest.GPU(pci.Address{Bus: 0x3b})
	display.Class = pci.Class(pci.ClassVGA) << 8
	w.k.Add(display)
	compute := w.k.AddGPU(0x41)
	w.k.SetNVIDIAModeset(true)
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, display.Address))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Forbidden) {
		t.Errorf("a display: %v, want %s", err, rule.Forbidden)
	}
	says(t, err, "nvidia_drm has modeset on", "early binding", "modeset=0")
	w.mustPrepare(w.request(other, compute))
	w.k.SetNVIDIAModeset(false)
	w.mustPrepare(w.request(uid, display.Address))
}
