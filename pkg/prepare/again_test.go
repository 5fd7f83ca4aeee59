package prepare_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// TestPrepareAgainWhileTheVMRuns: after its own restart the kubelet asks again
// for a claim whose VM runs. It gets the same answer, and the kernel is not
// bothered with a single write.
func TestPrepareAgainWhileTheVMRuns(t *testing.T) {
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			w := newWorld(t)
			req := w.request(uid, sc.build(w)...)
			w.mustPrepare(req)
			w.mustHandOver("first")
			w.kataTakes(w.record(uid).Plan.Addresses())
			first := w.mustPrepare(req)
			for i, fn := range first.Plan.Functions[:1] {
				w.k.Hold(w.groupNode(fn.Address), nobody+i, "qemu-system-x86", container)
			}
			before, writes := w.state(), len(w.k.Writes())
			for range 3 {
				if diff := cmp.Diff(first, w.mustPrepare(req)); diff != "" {
					t.Errorf("record (-want as at first +got):\n%s", diff)
				}
			}
			w.unchanged(before)
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
			if !w.hasSpec(uid) {
				t.Error("no CDI spec")
			}
		})
	}
}

// TestUnprepareAgain: a claim that is off the node, or never was on it, is no
// error, and nothing is written for it.
func TestUnprepareAgain(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	w.mustPrepare(w.request(uid, gpu))
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	writes := len(w.k.Writes())
	for _, id := range []string{uid, "never-heard-of"} {
		release, err := w.plugin(nil).Unprepare(t.Context(), id)
		if err != nil || release.Known {
			t.Errorf("Unprepare(%s) = %+v, %v; want an unknown claim", id, release, err)
		}
	}
	w.unchanged(before)
	if now := lastWrites(w, writes); len(now) > 0 {
		t.Errorf("wrote %v, want nothing", now)
	}
}

// TestUnprepareWithoutAReset: that nothing was reset is not that there was nothing
// to take back.
func TestUnprepareWithoutAReset(t *testing.T) {
	w := newWorld(t)
	req := w.request(uid, w.k.AddGPU(0x3b))
	req.Devices[0].VFIO.Reset = v1alpha1.ResetSkip
	w.mustPrepare(req)
	if release, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil || !release.Known || len(release.Proofs) > 0 {
		t.Errorf("Unprepare = %+v, %v; want a known claim without a proof", release, err)
	}
}

// TestOverrideIsLeftAsItWasFound: an administrator's driver_override, the
// function's own or none, is there again after the claim.
func TestOverrideIsLeftAsItWasFound(t *testing.T) {
	for name, override := range map[string]string{"not set": "\n", "own driver": "nvidia"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			path := "sys/bus/pci/devices/" + gpu.String() + "/driver_override"
			if err := w.k.Write(path, []byte(override)); err != nil {
				t.Fatal(err)
			}
			before := w.state()
			w.mustPrepare(w.request(uid, gpu))
			if now := w.bindings()[gpu]; now != (plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"}) {
				t.Errorf("bound %+v, want vfio-pci, by its override too", now)
			}
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			w.unchanged(before)
		})
	}
}

// TestMovedFunctionIsBoundAgain: somebody gave a prepared function another
// driver by hand. The next Prepare puts that right, unless the function is in
// use.
func TestMovedFunctionIsBoundAgain(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	for _, write := range [][2]string{
		{"sys/bus/pci/drivers/vfio-pci/unbind", gpu.String()},
		{"sys/bus/pci/devices/" + gpu.String() + "/driver_override", "\n"},
		{"sys/bus/pci/drivers_probe", gpu.String()},
	} {
		if err := w.k.Write(write[0], []byte(write[1])); err != nil {
			t.Fatal(err)
		}
	}
	h := w.k.Hold("/dev/dri/card0", nobody, "python3", "")
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	as[*effects.InUseError](t, err)
	h.Release()
	w.mustPrepare(req)
	if now := w.bindings()[gpu]; now != (plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"}) {
		t.Errorf("bound %+v, want vfio-pci, by its override too", now)
	}
}

// TestAnotherPodOnThePreparedClaim: a pod that was deleted by force is followed
// by another on the same claim. The record follows, and the other pod's sandbox
// gets the device clean.
func TestAnotherPodOnThePreparedClaim(t *testing.T) {
	w := newWorld(t)
	req := w.request(uid, w.k.AddGPU(0x3b))
	req.Pods = []claim.Pod{{UID: "p1", Name: "train"}}
	w.mustPrepare(req)
	w.mustHandOver("first")
	req.Pods = []claim.Pod{{UID: "p2", Name: "train"}}
	if rec := w.mustPrepare(req); !slices.Equal(rec.Plan.Claim.Pods, req.Pods) {
		t.Errorf("Prepare returns a record for %v, want %v", rec.Plan.Claim.Pods, req.Pods)
	}
	if rec := w.record(uid); !slices.Equal(rec.Plan.Claim.Pods, req.Pods) || rec.Sandbox.ID != "first" {
		t.Errorf("record for %v with sandbox %+v, want the other pod, and the first sandbox", rec.Plan.Claim.Pods, rec.Sandbox)
	}
	w.mustHandOver("second")
	if n := len(w.k.Resets()); n != 1 {
		t.Errorf("%d resets, want one", n)
	}
}
