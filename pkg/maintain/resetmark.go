package maintain

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// MarkForReset marks functions as not proven clean, so that they are reset before the next claim gets them. It leaves
// out functions that are marked already, and functions of claims that are prepared or quarantined, which nobody else
// gets without a reset. It does mark the functions of a claim that is being prepared, because the resets of that claim
// may be done already. It may be repeated, even while claims come and go.
func (m *Maintainer) MarkForReset(ctx context.Context, addrs []pci.Address, why string) error {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	return m.order.MarkForReset(ctx, snap, addrs, "", why)
}
