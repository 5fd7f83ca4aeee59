package plugin

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// holders finds out what keeps functions from claims. It implements [dra.Holders].
type holders struct {
	ctx     context.Context // the service's context: a timer calls Blocks, without a context of its own
	service *service
}

// LookForLost makes the repair look soon for claims that lost their devices. It never blocks.
func (h holders) LookForLost() {
	select {
	case h.service.heldByLost <- struct{}{}:
	default: // it is due already
	}
}

// blockedLimit bounds the search for a process that uses a function.
const blockedLimit = 30 * time.Second

// Blocks reports whether a process uses a function or one of its disks, by the same test as Prepare's. It also returns true if that is
// unknown.
func (h holders) Blocks(a pci.Address) bool {
	ctx, cancel := context.WithTimeout(h.ctx, blockedLimit)
	defer cancel()
	snap, err := h.service.watcher.Snapshot(ctx)
	if err == nil {
		err = h.service.node.Preparer.Order().Effects.Untaken(ctx, snap, plan.Ref{}, []pci.Address{a})
	}
	return err != nil
}
