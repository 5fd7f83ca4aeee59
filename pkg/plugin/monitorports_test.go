package plugin_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// silence is a kernel that sends no uevents.
type silence chan struct{}

func (s silence) Next() (inventory.Uevent, error) {
	<-s
	return inventory.Uevent{}, errors.New("closed")
}

func (s silence) Close() error {
	close(s)
	return nil
}

// TestLookKeepsPortsOfTheInventoryUpToDate: devices are published by the Watcher's snapshots. A port that was open for
// a while would otherwise keep all devices below it from tenants until the plugin starts again.
func TestLookKeepsPortsOfTheInventoryUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var watcher *inventory.Watcher
		s := newScene(t, board.Switch, func(s *scene, _ *plugin.MonitorConfig) {
			s.refreshes = func(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
				return watcher.Refresh(ctx, addrs)
			}
		})
		var err error
		if watcher, err = inventory.WatchBy(ctx, s.fs, make(silence)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- watcher.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		port := s.tree.Devices["left/port"]
		before := controlOf(t, watcher, port)
		for _, control := range []uint16{0, before} {
			s.tree.SetACS(port, control)
			s.look()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := controlOf(t, watcher, port); got != control {
				t.Errorf("after ACS control became %#04x, the snapshot has %#04x", control, got)
			}
		}
	})
}

// controlOf returns the ACS control register of a port in the latest snapshot.
func controlOf(t *testing.T, w *inventory.Watcher, port pci.Address) uint16 {
	t.Helper()
	snap, err := w.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, ok := snap.Function(port)
	if !ok || f.Capabilities.ACS == nil {
		t.Fatalf("port %s: %+v", port, f)
	}
	return f.Capabilities.ACS.Control
}

// TestLooksWithoutAFreshSnapshot: a stale one says nothing; where the ports can't be read, they are as they were.
func TestLooksWithoutAFreshSnapshot(t *testing.T) {
	var stale string
	var broken error
	s := newScene(t, board.Server, nil)
	whole := s.rescanned
	refresh := func(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
		snap, err := whole(ctx, addrs)
		if err != nil {
			return nil, err
		}
		changed := *snap
		changed.Stale = stale
		return &changed, broken
	}
	s.refreshes = refresh
	s.tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	stale = "the scan failed"
	s.look()
	if s.wantFailing("gpu0"); len(s.states) != 0 {
		t.Errorf("a stale snapshot was judged: %v", s.states)
	}
	stale, broken = "", errors.New("no memory")
	s.look()
	if s.wantFailing("gpu0", "IOM-003"); s.states["IOM-003"] != finding.Fail {
		t.Errorf("with ports as they were: IOM-003 is %s", s.states["IOM-003"])
	}
}
