package prepare_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// sharing is a node with a GPU that another DRA driver publishes too.
func sharing(t *testing.T) (*world, pci.Address) {
	w := newWorld(t)
	w.name = "node"
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: "gpu.example.com"},
	}}
	w.node.Default()
	return w, w.k.AddGPU(0x3b)
}

func (w *world) sharedRequest(gpu pci.Address) *claim.Request {
	req := w.request(uid, gpu)
	req.Devices[0].Pool = "node/shared"
	return req
}

// TestSharedGPUGoesBack to the driver that the other DRA driver needs, and the record ends after that.
func TestSharedGPUGoesBack(t *testing.T) {
	w, gpu := sharing(t)
	before := w.bindings()[gpu]
	if _, err := w.plugin(nil).Prepare(t.Context(), w.sharedRequest(gpu)); err != nil {
		t.Fatal(err)
	}
	if now := w.bindings()[gpu]; now.Driver != "vfio-pci" {
		t.Errorf("prepared: on %q, want vfio-pci", now.Driver)
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if now := w.bindings()[gpu]; now != before || w.record(uid) != nil {
		t.Errorf("unprepared: %+v, want %+v; record %+v", now, before, w.record(uid))
	}
}

// TestSharedGPUWithoutItsDriver is not back: the driver's module is gone, and the record stays for the next try.
func TestSharedGPUWithoutItsDriver(t *testing.T) {
	w, gpu := sharing(t)
	if _, err := w.plugin(nil).Prepare(t.Context(), w.sharedRequest(gpu)); err != nil {
		t.Fatal(err)
	}
	w.k.RemoveDriver("nvidia")
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
		t.Error("unprepared without the host driver")
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned {
		t.Errorf("record %+v, want it cleaned and kept", rec)
	}
}

// TestSharedGPUThatDoesNotAnswer is quarantined: the pod can end, and the taint keeps both drivers' claims away. Once it answers,
// the same command returns it.
func TestSharedGPUThatDoesNotAnswer(t *testing.T) {
	w, gpu := sharing(t)
	if _, err := w.plugin(nil).Prepare(t.Context(), w.sharedRequest(gpu)); err != nil {
		t.Fatal(err)
	}
	healthy, err := w.fs.ConfigHead(gpu, 64)
	if err != nil {
		t.Fatal(err)
	}
	fails := true
	w.k.AfterWrite(func(path, value string) {
		if fails && strings.HasSuffix(path, "drivers_probe") && value == gpu.String() {
			w.k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 64))...)
		}
	})
	_, err = w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	says(t, err, gpu.String(), "does not answer on driver nvidia", "kata-vfio-plugin unprepare "+uid)
	if rec := w.record(uid); rec == nil || rec.State != journal.Quarantined || len(rec.Proofs) > 0 {
		t.Errorf("record %+v, want a quarantine without proof", rec)
	}
	if now := w.bindings()[gpu]; now.Driver != "nvidia" {
		t.Errorf("on %q, want nvidia", now.Driver)
	}
	fails = false
	w.k.SetConfig(gpu, 0, healthy...)
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if now := w.bindings()[gpu]; now.Driver != "nvidia" || w.record(uid) != nil {
		t.Errorf("after the repair: on %q, record %+v; want nvidia, nil", now.Driver, w.record(uid))
	}
}

// TestGPUOfTheNodePoolMayBeSilent: its taint says so, and no other driver waits for it.
func TestGPUOfTheNodePoolMayBeSilent(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	if _, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu)); err != nil {
		t.Fatal(err)
	}
	w.k.AfterWrite(func(path, _ string) {
		if strings.HasSuffix(path, "drivers_probe") {
			w.k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 64))...)
		}
	})
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Error(err)
	}
}

// TestRecoverListsASharedGPUThatDoesNotAnswer with the other quarantines: nothing is left to do for the next try.
func TestRecoverListsASharedGPUThatDoesNotAnswer(t *testing.T) {
	w, gpu := sharing(t)
	if _, err := w.plugin(nil).Prepare(t.Context(), w.sharedRequest(gpu)); err != nil {
		t.Fatal(err)
	}
	w.k.RemoveDriver("nvidia")
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
		t.Fatal("unprepared without the host driver")
	}
	w.k.AddDriver("nvidia", sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchClass(pci.Class3D)}})
	w.k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 64))...)
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Quarantined) != 1 || len(r.Released) > 0 {
		t.Errorf("Recover = %+v, %v; want one quarantine and nothing unfinished", r, err)
	}
	if rec := w.record(uid); rec == nil || rec.State != journal.Quarantined {
		t.Errorf("record %+v, want a quarantine", rec)
	}
}
