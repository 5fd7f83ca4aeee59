//go:build lab

package discovery_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// limit is how long a snapshot may take to arrive; under emulation, usual times are a fifth of it.
const limit = 30 * time.Second

// watch is a running watcher with a subscription.
type watch struct {
	*inventory.Watcher
	snapshots <-chan *device.Snapshot
}

func startWatch(t *testing.T) *watch {
	t.Helper()
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	w, err := inventory.Watch(t.Context(), fs)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	snapshots, cancel := w.Subscribe()
	t.Cleanup(func() {
		cancel()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = fs.Close()
	})
	return &watch{w, snapshots}
}

// await takes snapshots as they come until one fits, and returns how many came.
func (w *watch) await(t *testing.T, what string, fits func(*device.Snapshot) bool) int {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case snap := <-w.snapshots:
			if snap.Stale != "" {
				t.Errorf("%s: the snapshot is stale: %s", what, snap.Stale)
			}
			if fits(snap) {
				return n
			}
		case <-timer.C:
			t.Fatalf("no snapshot within %s: %s", limit, what)
		}
	}
}

// numVFs is how many VFs a PF has by its own word and by the functions that are there.
func numVFs(t *testing.T, snap *device.Snapshot, pf pci.Address) (said, there int) {
	t.Helper()
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.Address == pf && f.PF != nil {
			said = f.PF.NumVFs
		}
		if f.VF != nil && f.VF.PF == pf {
			there++
		}
	}
	return said, there
}

// TestWatchFollowsVFs creates and removes VFs.
func TestWatchFollowsVFs(t *testing.T) {
	w, pf := startWatch(t), stage.Address(t, topology.PF0)
	for _, n := range []int{7, 0, 3, 0} {
		begin := time.Now()
		kernel.Write(t, kernel.Path(topology.PF0, "sriov_numvfs"), strconv.Itoa(n))
		written := time.Since(begin)
		count := w.await(t, strconv.Itoa(n)+" VFs", func(s *device.Snapshot) bool {
			said, there := numVFs(t, s, pf)
			return said == n && there == n
		})
		t.Logf("%d VFs: the write took %d ms, and the snapshot came, the %dth, after %d ms", n, written.Milliseconds(), count, time.Since(begin).Milliseconds())
	}
	w.sameAsScan(t)
}

// TestWatchFollowsDrivers takes a function from its driver, to VFIO and back.
func TestWatchFollowsDrivers(t *testing.T) {
	w := startWatch(t)
	bound := func(driver string) {
		t.Helper()
		w.await(t, topology.GPU0+" on "+driver, func(s *device.Snapshot) bool {
			f := stage.Function(t, s, topology.GPU0)
			return f.Driver == driver && (len(f.Children.DRM) > 0) == (driver == "bochs-drm")
		})
	}
	t.Run("on VFIO", func(t *testing.T) {
		kernel.Bind(t, topology.GPU0, "vfio-pci")
		bound("vfio-pci")
		w.sameAsScan(t)
	})
	bound("bochs-drm")
	w.sameAsScan(t)
}

// TestWatchFollowsThePlug takes a function off the bus and finds it again.
func TestWatchFollowsThePlug(t *testing.T) {
	w, a := startWatch(t), stage.Address(t, topology.NIC0)
	kernel.Write(t, kernel.Path(topology.NIC0, "remove"), "1")
	w.await(t, topology.NIC0+" gone", func(s *device.Snapshot) bool {
		_, ok := s.Function(a)
		return !ok
	})
	kernel.Write(t, "/sys/bus/pci/rescan", "1")
	w.await(t, topology.NIC0+" back", func(s *device.Snapshot) bool {
		f, ok := s.Function(a)
		return ok && f.Driver == "e1000e" && f.Group != nil && len(f.Children.Net) == 1
	})
	w.sameAsScan(t)
}

// TestRefreshSeesAddresses: the kernel sends no uevent for an address. Refresh sees it, and the watcher learns it then.
func TestRefreshSeesAddresses(t *testing.T) {
	w, a := startWatch(t), stage.Address(t, topology.PF0)
	pf := kernel.Interface(t, topology.PF0)
	command(t, "ip", "address", "replace", "10.9.0.22/24", "dev", pf)
	t.Cleanup(func() { command(t, "ip", "address", "flush", "dev", pf) })
	command(t, "ip", "link", "set", pf, "up")
	t.Cleanup(func() { command(t, "ip", "link", "set", pf, "down") })
	snap, err := w.Refresh(t.Context(), []pci.Address{a})
	if err != nil {
		t.Fatal(err)
	}
	wantUse(t, snap, topology.PF0, device.UseAddress, "10.9.0.22/24")
	w.await(t, pf+" in use", func(s *device.Snapshot) bool {
		return len(stage.Function(t, s, topology.PF0).Uses) > 0
	})
}

// TestWatchSurvivesABurst creates and destroys 22 VFs on three PFs at once, again and again, faster than snapshots are
// made. The last snapshot is what a fresh scan says.
func TestWatchSurvivesABurst(t *testing.T) {
	w := startWatch(t)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	begin := time.Now()
	var all sync.WaitGroup
	for pf, n := range map[string]string{topology.PF0: "7", topology.PF1: "7", topology.NVMe0: "8"} {
		t.Cleanup(func() { kernel.Write(t, kernel.Path(pf, "sriov_numvfs"), "0") })
		all.Go(func() {
			for range rounds {
				kernel.Write(t, kernel.Path(pf, "sriov_numvfs"), n)
				kernel.Write(t, kernel.Path(pf, "sriov_numvfs"), "0")
			}
			kernel.Write(t, kernel.Path(pf, "sriov_numvfs"), n)
		})
	}
	all.Wait()
	burst := time.Since(begin)
	count := w.sameAsScan(t)
	t.Logf("%d VFs came and %d went in %.1fs; %d snapshots followed, the last one %.1fs later", 22*(rounds+1), 22*rounds,
		burst.Seconds(), count, time.Since(begin).Seconds()-burst.Seconds())
	snap, _ := w.Snapshot(t.Context())
	for pf, n := range map[string]int{topology.PF0: 7, topology.PF1: 7, topology.NVMe0: 8} {
		if said, there := numVFs(t, snap, stage.Address(t, pf)); said != n || there != n {
			t.Errorf("%s says %d VFs and has %d, want %d", pf, said, there, n)
		}
	}
}

// sameAsScan waits until the latest snapshot is what a fresh scan says: snapshots come until then, since a scan is made
// after each one that came and compared to it. It returns how many came.
func (w *watch) sameAsScan(t *testing.T) int {
	t.Helper()
	count := 0
	diff := ""
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		snap, _ := w.Snapshot(t.Context())
		if diff = cmp.Diff(stage.Scan(t), snap); diff == "" {
			return count
		}
		select {
		case <-w.snapshots:
			count++
		case <-timer.C:
			t.Fatalf("no further snapshot within %s, and the last is not what a scan says (-scan +watch):\n%s", limit, diff)
		}
	}
}
