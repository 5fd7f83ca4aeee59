//go:build lab

package badday_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/crash/victim"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// disk is a small disk that can be filled and freed.
type disk struct{ dir string }

// Sizes of disks: that of the plugin's state has its reserve on it, and room for claims besides.
const (
	tinyDisk  = "size=64k"
	stateDisk = "size=24m"
)

// mountDisk mounts one on a directory as long as the test runs.
func mountDisk(t *testing.T, dir, size string) disk {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk{dir}
}

// fill takes all space. It may be called from the plugin's goroutines.
func (d disk) fill() error {
	f, err := os.Create(filepath.Join(d.dir, "filler"))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 512} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}

func (d disk) free(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.dir, "filler")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// attempt opens a node that calls interfere after the event of that number, counted from its opening. reached says
// whether it came to that, and has it come to nothing from then on.
func attempt(t *testing.T, places victim.Places, at int, interfere func() error) (n *node.Node, reached func() bool) {
	t.Helper()
	count := 0
	c := places.NodeConfig()
	c.Observe = func(effects.Event) { // GPU0 is one group: its events come one by one
		if count++; count != at {
			return
		}
		if err := interfere(); err != nil {
			t.Error(err)
		}
	}
	return stage.OpenPlain(t, c), func() bool {
		came := count >= at
		at = -1
		return came
	}
}

// step is from one point to the next that is tried: with -short, one in three.
func step() int {
	if testing.Short() {
		return 3
	}
	return 1
}

// TestFullDiskOnTheWayIn fills the journal's disk before Prepare, which does not begin then, and after every point of it.
func TestFullDiskOnTheWayIn(t *testing.T) {
	places := stateOf(t, "full")
	small := mountDisk(t, "/"+places.StateDir, stateDisk)
	before, failed := stage.Bindings(t), 0
	tried := 0
	for at, more := 0, true; more; at += step() { // until nothing is left to fail at
		tried++
		n, reached := attempt(t, places, at, small.fill)
		if at == 0 {
			must(t, small.fill())
		}
		_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
		if err != nil {
			failed++
			stage.Says(t, err, "/"+places.StateDir)
			if _, full := errors.AsType[*journal.FullError](err); full != (at == 0) || !full && !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("at point %d: %v", at, err)
			}
			stage.Unchanged(t, before)
			stage.Empty(t, n)
		}
		more = reached()
		small.free(t)
		unprepared(t, n, small, places, before)
		if t.Failed() {
			t.Fatalf("the disk was filled at point %d", at)
		}
	}
	t.Logf("%d points tried, at %d of them Prepare failed", tried, failed)
	if failed == 0 || failed == tried {
		t.Errorf("Prepare failed at %d of %d points", failed, tried)
	}
}

// TestFullDiskOnTheWayOut fills it before Unprepare, which ends by the reserve then, and after every point. The claim stays
// whole, or its way back is finished once there is room.
func TestFullDiskOnTheWayOut(t *testing.T) {
	places := stateOf(t, "full")
	small := mountDisk(t, "/"+places.StateDir, stateDisk)
	before, failed := stage.Bindings(t), 0
	tried := 0
	for at, more := 0, true; more; at += step() { // until nothing is left to fail at
		tried++
		if _, err := stage.OpenPlain(t, places.NodeConfig()).Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0)); err != nil {
			t.Fatal(err)
		}
		n, reached := attempt(t, places, at, small.fill)
		if at == 0 {
			must(t, small.fill())
		}
		if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
			failed++
			stage.Says(t, err, "no space left on device", "/"+places.StateDir)
			if at == 0 {
				t.Error("the claim did not end by the reserve")
			}
		}
		more = reached()
		small.free(t)
		unprepared(t, n, small, places, before)
		if t.Failed() {
			t.Fatalf("the disk was filled at point %d", at)
		}
	}
	t.Logf("%d points tried, at %d of them Unprepare failed", tried, failed)
	if failed == 0 || failed == tried {
		t.Errorf("Unprepare failed at %d of %d points", failed, tried)
	}
}

// unprepared takes the claim off the node, and checks that nothing is left, unfinished files included.
func unprepared(t *testing.T, n *node.Node, small disk, places victim.Places, before map[string]plan.Binding) {
	t.Helper()
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Errorf("Unprepare when there is room again: %v", err)
	}
	stage.Unchanged(t, before)
	for _, dir := range []string{filepath.Join(small.dir, "journal"), "/" + places.CDIDir} {
		if left := stage.Files(t, dir); len(left) > 0 {
			t.Errorf("%s holds %v", dir, left)
		}
	}
}

// TestFullCDIDirectory leaves no room for the CDI spec.
func TestFullCDIDirectory(t *testing.T) {
	places := stateOf(t, "full")
	small := mountDisk(t, "/"+places.CDIDir, tinyDisk)
	must(t, small.fill())
	before := stage.Bindings(t)
	n := stage.Open(t, places.NodeConfig())
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
	stage.Says(t, err, "no space left on device", "/"+places.CDIDir)
	oneLine(t, err, "no space left")
	stage.Unchanged(t, before)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
