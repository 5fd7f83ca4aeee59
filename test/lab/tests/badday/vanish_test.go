//go:build lab

package badday_test

import (
	"os"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestVFsRemoved disables the VFs of a PF while a claim has one and nobody has it open.
func TestVFsRemoved(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	n := stage.Open(t, stage.Config())
	vf := topology.VF(topology.PF0, 1)
	req := stage.Request(t, uid, vf, topology.GPU0)
	if _, err := n.Preparer.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	kernel.Write(t, kernel.Path(topology.PF0, "sriov_numvfs"), "0")
	before := stage.Bindings(t)
	_, err := n.Preparer.Prepare(t.Context(), req)
	stage.Says(t, err, vf, "delete its pod")
	release, err := n.Preparer.Unprepare(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	if len(release.Proofs) != 1 || release.Proofs[0].Set[0].String() != topology.GPU0 {
		t.Errorf("proofs of %+v; want one, of %s: the VF has none", release.Proofs, topology.GPU0)
	}
	now := stage.Bindings(t)
	before[topology.GPU0] = now[topology.GPU0]
	if got := now[topology.GPU0].Driver; got != "bochs-drm" {
		t.Errorf("%s is on %q", topology.GPU0, got)
	}
	stage.Unchanged(t, before)
}

// TestVanishesOnTheWayIn removes the function from the bus after every point of Prepare: an error that names it, and
// nothing left.
func TestVanishesOnTheWayIn(t *testing.T) {
	before := stage.Bindings(t)
	const points = 10
	tried, failed := 0, 0
	for at := 1; at <= points; at += step() {
		tried++
		n, _ := attempt(t, victim.Places{}, at, remove)
		_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
		if err != nil {
			failed++
			stage.Says(t, err, topology.GPU0)
			stage.Empty(t, n)
		}
		if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
			t.Error(err)
		}
		stage.Empty(t, n)
		comeBack(t)
		stage.Unchanged(t, before)
		if t.Failed() {
			t.Fatalf("removed at point %d", at)
		}
	}
	t.Logf("%d points tried, at %d of them Prepare failed", tried, failed)
}

// TestVanishesOnTheWayOut removes it after every point of Unprepare, which has nothing to give back then.
func TestVanishesOnTheWayOut(t *testing.T) {
	before := stage.Bindings(t)
	const points = 11
	for at := 1; at <= points; at += step() {
		n, _ := attempt(t, victim.Places{}, at, remove)
		if _, err := stage.OpenPlain(t, stage.Config()).Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
			t.Error(err)
		}
		stage.Empty(t, n)
		comeBack(t)
		stage.Unchanged(t, before)
		if t.Failed() {
			t.Fatalf("removed at point %d", at)
		}
	}
	t.Logf("%d points tried", (points-1)/step()+1)
}

// remove takes GPU0 off the bus.
func remove() error {
	return os.WriteFile(kernel.Path(topology.GPU0, "remove"), []byte("1"), 0)
}

// comeBack finds GPU0 again.
func comeBack(t *testing.T) {
	t.Helper()
	kernel.Write(t, "/sys/bus/pci/rescan", "1")
	kernel.Eventually(t, topology.GPU0+" has its driver", 30*time.Second, func() bool {
		return kernel.Driver(t, topology.GPU0) == "bochs-drm"
	})
}
