package prepare

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// stillFree looks once more, right before a function is taken from a driver whose
// unbind waits in the kernel for all who use it: between the first look and the write
// there are a record on disk and the steps of other functions, and a user that came in
// that time makes an unbind that may never end. A user that comes later still does.
func (p *Preparer) stillFree(ctx context.Context, claim plan.Ref, s plan.Step) error {
	if s.Operation != plan.Unbind || !device.WaitsForUsers(s.DriverBefore) {
		return nil
	}
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	return p.unheld(ctx, snap, claim, []pci.Address{s.Address})
}
