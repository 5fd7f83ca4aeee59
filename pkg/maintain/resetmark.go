package maintain

import (
	"context"
	"errors"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
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
	marks, err := m.order.Effects.Journal.NeedsReset()
	if err != nil {
		return err
	}
	marked := journal.NeedReset(marks, snap)
	records, _ := m.order.Effects.Journal.List() // functions whose record can't be read are marked
	for _, rec := range records {
		left := rec.State == journal.Prepared || rec.State == journal.Quarantined
		if left && rec.Kind == journal.Claim && rec.BootID == snap.Host.BootID {
			for _, a := range rec.Plan.AddressesIn(snap) {
				marked[a] = true
			}
		}
	}
	var failed []error
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok || marked[a] {
			continue
		}
		mark := journal.ResetMark{Address: a, Identity: snap.Identify(f), Why: why, Since: time.Now().UTC().Format(time.RFC3339)}
		failed = append(failed, m.order.Effects.Journal.MarkNeedsReset(mark))
	}
	return errors.Join(failed...)
}
