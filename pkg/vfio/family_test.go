package vfio_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// TestFamily: a process and what descends from it, however the PIDs are ordered.
func TestFamily(t *testing.T) {
	k := sysfstest.New(t)
	const shim, child, grandchild, other = 900, 800, 950, 700
	k.Run(sysfstest.Process{PID: shim, Comm: "shim", Group: shim})
	k.Run(sysfstest.Process{PID: child, Comm: "sh", Parent: shim, Group: shim})
	k.Run(sysfstest.Process{PID: grandchild, Comm: "qemu", Parent: child, Group: grandchild})
	k.Run(sysfstest.Process{PID: other, Comm: "bash", Group: other})
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	check := func(when string, start uint64, want ...int) {
		t.Helper()
		family, err := vfio.Family(t.Context(), fs, shim, start)
		if err != nil || len(family) != len(want) {
			t.Fatalf("%s: Family = %v, %v; want PIDs %v", when, family, err, want)
		}
		for i, h := range family {
			if h.PID != want[i] || h.StartTime != sysfstest.StartTime(want[i]) {
				t.Errorf("%s: %+v, want process %d", when, h, want[i])
			}
		}
	}
	check("all run", sysfstest.StartTime(shim), child, shim, grandchild)
	check("another process has the PID", 1)
	k.Kill(shim)
	check("the first has ended", sysfstest.StartTime(shim), child, grandchild)
	k.Kill(child)
	check("its group has ended", sysfstest.StartTime(shim))
}
