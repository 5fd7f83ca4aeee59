package plan_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// oneGroup returns a node with n functions that share one IOMMU group, as on a board without ACS.
func oneGroup(n int) plan.Node {
	s := &device.Snapshot{Host: device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}}}
	group := device.Group{Number: 1, Type: "DMA"}
	for i := range n {
		f := on(pci.Address{Bus: uint8(0x20 + i/256), Device: uint8(i / 8 % 32), Function: uint8(i % 8)}, 0x120000, "", 1)
		f.Upstream = nil
		s.Functions = append(s.Functions, f)
		group.Members = append(group.Members, f.Address)
	}
	s.Groups = []device.Group{group}
	return plan.Node{Snapshot: s, Selection: nodeconfig.Select(nil, s)}
}

// cpuTime returns the CPU time that this thread has used. The time on the clock depends on what else the machine does.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// assessTime returns the CPU time for judgments on one function of a node, each by an assessor that knows nothing yet.
func assessTime(t *testing.T, n plan.Node, times int) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := cpuTime(t)
	for range times {
		plan.NewAssessor(n).Assess(&n.Snapshot.Functions[0])
	}
	return max(cpuTime(t)-start, time.Millisecond)
}

// TestAssessmentGrowsWithItsGroup: each Publish judges all functions. A judgment may look at each function of the IOMMU group,
// but not at each pair of them.
func TestAssessmentGrowsWithItsGroup(t *testing.T) {
	small, large := assessTime(t, oneGroup(128), 128), assessTime(t, oneGroup(32*128), 4)
	if ratio := float64(large) / float64(small); ratio > 8 { // 1 for a look at each function, 32 for one at each pair
		t.Errorf("for the same number of functions, judgments in a group with 32 times as many take %.0f times as long, want at most 8", ratio)
	}
}

// TestResetsOfALargeGroup: the plan of one function resets each function of its group, once.
func TestResetsOfALargeGroup(t *testing.T) {
	n := oneGroup(64)
	n.Snapshot.Host.IOMMUFD = true
	f := &n.Snapshot.Functions[3]
	pl, err := plan.Make(asking(n.Snapshot, f.Address), n)
	if err != nil {
		t.Fatal(err)
	}
	var reset []string
	for _, r := range pl.Resets() {
		reset = append(reset, fmt.Sprint(r.Set))
	}
	slices.Sort(reset)
	if once := slices.Compact(slices.Clone(reset)); len(once) != 64 || len(reset) != 64 {
		t.Errorf("%d resets of %d functions; want each of 64 reset once", len(reset), len(once))
	}
}

// TestDrainsGrowWithTheirGroup: each function of a group has to find the drain of any other, and looks at no pair for it.
func TestDrainsGrowWithTheirGroup(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := func(n plan.Node) time.Duration {
		last := n.Snapshot.Functions[len(n.Snapshot.Functions)-1].Address
		start := cpuTime(t)
		drains := plan.NewDrains(n.Snapshot, map[pci.Address]bool{last: true})
		for i := range n.Snapshot.Functions {
			if a, ok := drains.Find(&n.Snapshot.Functions[i]); !ok || a != last {
				t.Fatalf("function %d is kept by %s, %t; want %s", i, a, ok, last)
			}
		}
		return max(cpuTime(t)-start, time.Millisecond)
	}
	small, large := took(oneGroup(256)), took(oneGroup(16*256))
	if ratio := float64(large) / float64(small); ratio > 64 { // 16 for a look at each function, 256 for one at each pair
		t.Errorf("in a group with 16 times as many functions, drains take %.0f times as long, want at most 64", ratio)
	}
}
