package node

import (
	"context"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Scanning returns the inventory of a command that runs once: it scans the
// node when first asked, and reads again only what Refresh names.
func Scanning(fs *sysfs.FS) (prepare.Inventory, error) { return &scanning{fs: fs}, nil }

type scanning struct {
	fs *sysfs.FS

	mu   sync.Mutex // guards last
	last *device.Snapshot
}

// Snapshot implements [prepare.Inventory].
func (s *scanning) Snapshot(ctx context.Context) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		return s.last, nil
	}
	snap, err := inventory.Scan(ctx, s.fs)
	if err != nil {
		return nil, err
	}
	s.last = snap
	return snap, nil
}

// Refresh implements [prepare.Inventory].
func (s *scanning) Refresh(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	last, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := inventory.Rescan(ctx, s.fs, last, addrs, inventory.Lightly())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = snap
	return snap, nil
}
