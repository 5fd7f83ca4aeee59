package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A record that can't be read does not say which functions a VM may have had. In a later boot these functions are on
// their host drivers, and no record keeps claims from them. So they are found in the ledger, and marked.

// markUnreadable marks the functions of claims whose records can't be read, by the errors of [journal.Store.List]. The
// boot of such a record is unknown, so that records of this boot count too: their functions cost one reset more.
func (p *Preparer) markUnreadable(ctx context.Context, snap *device.Snapshot, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	ids := make([]string, len(errs))
	for i, err := range errs {
		if file, ok := errors.AsType[*journal.FileError](err); ok {
			ids[i] = file.RecordID()
		}
	}
	defer p.recall(ctx, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" }))()
	for i, id := range ids {
		addrs, known := p.givenTo(ctx, snap, id)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !known {
			addrs = p.selected(snap)
		}
		p.order.Effects.MakeRoom()
		if err := p.order.MarkForReset(ctx, snap, addrs, id, "the record of a claim that may have had it can't be read"); err != nil {
			return fmt.Errorf("mark the devices that the claim of an unreadable record may have had as not clean (%w): %w", errs[i], err)
		}
	}
	return nil
}

// givenTo returns the functions that a claim's last Prepare in the ledger may have been about, and false if they are
// unknown: the ledger has no such event or can't be read, the claim ended after it, so that the record is of a later
// Prepare, or a device of another model is at one of the addresses now.
//
// Firmware may have given the addresses of an earlier boot to other devices of the same model, which the ledger can't
// tell from those of the claim. So all selected functions of these models count too.
func (p *Preparer) givenTo(ctx context.Context, snap *device.Snapshot, id string) (addrs []pci.Address, known bool) {
	if p.order.Effects.Ledger == nil || id == "" {
		return nil, false
	}
	events, err := p.order.Effects.Ledger.Tenancy(ctx, id)
	if err != nil || len(events) == 0 || slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Type == ledger.Unprepare }) {
		return nil, false
	}
	models := map[model]bool{}
	for _, d := range events[0].Devices {
		f, ok := snap.Function(d.Address)
		if !ok || f.Vendor != d.Vendor || f.Device != d.Device {
			return nil, false
		}
		addrs, models[functionModel(f)] = append(addrs, d.Address), true
	}
	if events[0].BootID != snap.Host.BootID {
		addrs = append(addrs, p.selectedModels(snap, models)...)
	}
	return sortedOnce(addrs), len(addrs) > 0
}

// model is what the ledger says about the model of a function.
type model struct{ vendor, device pci.ID }

func functionModel(f *device.Function) model { return model{f.Vendor, f.Device} }

// selectedModels returns those of the selected functions that are of the models.
func (p *Preparer) selectedModels(snap *device.Snapshot, models map[model]bool) []pci.Address {
	return slices.DeleteFunc(p.selected(snap), func(a pci.Address) bool {
		f, ok := snap.Function(a)
		return !ok || !models[functionModel(f)]
	})
}

// selected returns the functions that the node config selects, and those that are assigned with them.
func (p *Preparer) selected(snap *device.Snapshot) []pci.Address {
	var addrs []pci.Address
	for _, f := range nodeconfig.Select(p.order.Config.Node, snap).Ours() {
		for _, with := range isolation.AssignmentSet(snap, f) {
			addrs = append(addrs, with.Address)
		}
	}
	return sortedOnce(addrs)
}

// sortedOnce sorts addresses and removes duplicates.
func sortedOnce(addrs []pci.Address) []pci.Address {
	slices.SortFunc(addrs, pci.Address.Compare)
	return slices.Compact(addrs)
}
