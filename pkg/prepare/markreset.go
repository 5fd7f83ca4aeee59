package prepare

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// MarkForReset marks functions of a snapshot as not proven clean. id is the UID of the claim that may have had them;
// empty if there is none. It leaves out functions that are marked already, and functions of claims that are prepared or
// quarantined, which nobody else gets without a reset.
func (o *Order) MarkForReset(ctx context.Context, snap *device.Snapshot, addrs []pci.Address, id, why string) error {
	marks, err := o.Effects.Journal.NeedsReset()
	if err != nil {
		return err
	}
	marked := journal.NeedReset(marks, snap)
	records, _ := o.Effects.Journal.List() // functions whose record can't be read are marked
	for _, rec := range records {
		left := rec.State == journal.Prepared || rec.State == journal.Quarantined
		if left && rec.Kind == journal.Claim && rec.BootID == snap.Host.BootID {
			for _, a := range rec.Plan.AddressesIn(snap) {
				marked[a] = true
			}
		}
	}
	var all []journal.ResetMark
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok || marked[a] {
			continue
		}
		all = append(all, journal.ResetMark{
			Address: a, Identity: snap.Identify(f), Claim: id, Why: why, Since: time.Now().UTC().Format(time.RFC3339),
		})
	}
	if len(all) == 0 {
		return nil
	}
	return o.Effects.Journal.MarkNeedsReset(ctx, all...)
}
