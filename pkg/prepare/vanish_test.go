package prepare_test

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// removeAt takes the function off the bus just before the n-th write from now
// on takes effect.
func removeAt(w *world, a pci.Address, n int32) {
	var count atomic.Int32
	w.k.OnWrite(func(string, string) error {
		if count.Add(1) == n {
			w.k.Remove(a)
		}
		return nil
	})
}

// writesOf returns how many writes an act has on a node of its own.
func writesOf(t *testing.T, sc scene, a act) int32 {
	t.Helper()
	w := newWorld(t)
	addrs := sc.build(w)
	a.begin(w, addrs)
	before := len(w.k.Writes())
	if err := a.run(w, nil, addrs); err != nil {
		t.Fatal(err)
	}
	return int32(len(w.k.Writes()) - before)
}

// TestFunctionVanishesOnTheWayIn removes the device at every single write of
// every kind of plan. Prepare fails and says so, and everything else on the
// node is as it was, with no record and no spec.
func TestFunctionVanishesOnTheWayIn(t *testing.T) {
	points := 0
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			n := writesOf(t, sc, acts()[0])
			for at := int32(1); at <= n; at++ {
				w := newWorld(t)
				addrs := sc.build(w)
				before := w.state()
				req := w.request(uid, addrs...)
				removeAt(w, addrs[0], at)
				_, err := w.plugin(nil).Prepare(t.Context(), req)
				says(t, err, addrs[0].String())
				delete(before.Bindings, addrs[0])
				w.unchanged(before)
				points++
			}
		})
	}
	t.Logf("%d points tried", points)
}

// TestFunctionVanishesOnTheWayOut removes the device at every single write of
// the way back. It may take a second Unprepare, the operator's where the reset
// was cut off, but then nothing is left.
func TestFunctionVanishesOnTheWayOut(t *testing.T) {
	points := 0
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			n := writesOf(t, sc, acts()[1])
			for at := int32(1); at <= n; at++ {
				w := newWorld(t)
				addrs := sc.build(w)
				before := w.state()
				w.mustPrepare(w.request(uid, addrs...))
				removeAt(w, addrs[0], at)
				_, err := w.plugin(nil).Unprepare(t.Context(), uid)
				if err != nil {
					says(t, err, addrs[0].String())
					_, err = w.plugin(nil).Unprepare(t.Context(), uid)
				}
				if err != nil {
					t.Errorf("write %d: second Unprepare: %v, want nil", at, err)
				}
				delete(before.Bindings, addrs[0])
				w.unchanged(before)
				points++
			}
		})
	}
	t.Logf("%d points tried", points)
}

// TestGoneFunctionIsNoProof: a function that was pulled before the reset is let
// go, and nobody claims that it was reset.
func TestGoneFunctionIsNoProof(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	_, vfs := w.k.AddNIC(0x21, 1)
	w.mustPrepare(w.request(uid, gpu, vfs[0]))
	w.k.Remove(gpu)
	release, err := w.plugin(nil).Unprepare(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	var reset [][]pci.Address
	for _, p := range release.Proofs {
		reset = append(reset, p.Set)
		if len(p.Before) == 0 || len(p.After) == 0 {
			t.Errorf("proof is %+v, want fingerprints before and after", p)
		}
	}
	if diff := cmp.Diff([][]pci.Address{{vfs[0]}}, reset); diff != "" {
		t.Errorf("proven clean (-want +got):\n%s", diff)
	}
	if w.record(uid) != nil || w.hasSpec(uid) {
		t.Error("the claim is still on the node")
	}
}

// TestPreparedFunctionIsGone: the kubelet asks again for a prepared claim whose
// device was pulled; it hears so and what to do.
func TestPreparedFunctionIsGone(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	w.k.Remove(gpu)
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	says(t, err, "0000:3b:00.0", sysfs.ErrNoFunction.Error(), "delete its pod")
}

// TestVanishedDuringReset: what leaves the bus while it is being reset has
// taken its state along.
func TestVanishedDuringReset(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnWrite(func(path, _ string) error {
		if path == "sys/bus/pci/devices/"+gpu.String()+"/reset" {
			w.k.Remove(gpu)
		}
		return nil
	})
	release, err := w.plugin(nil).Unprepare(t.Context(), uid)
	if err != nil {
		t.Error(err)
	}
	if len(release.Proofs) > 0 {
		t.Errorf("proofs of a function that is gone: %+v, want none", release.Proofs)
	}
}
