package plugin

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// holders finds out what has functions. It implements [dra.Holders].
type holders struct {
	ctx     context.Context // of the service: a timer looks, and no call
	service *service
}

// LookForLost makes the repair look soon. It never blocks.
func (h holders) LookForLost() {
	select {
	case h.service.heldByLost <- struct{}{}:
	default: // it is due already
	}
}

// blockedLimit limits the look whether a process has a function in use.
const blockedLimit = 30 * time.Second

// Blocks reports whether a function or one of its disks is in use by a process, as Prepare sees it, or whether that is unknown.
func (h holders) Blocks(a pci.Address) bool {
	ctx, cancel := context.WithTimeout(h.ctx, blockedLimit)
	defer cancel()
	snap, err := h.service.watcher.Snapshot(ctx)
	if err == nil {
		err = h.service.node.Preparer.Order().Effects.Untaken(ctx, snap, plan.Ref{}, []pci.Address{a})
	}
	return err != nil
}
