package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// lookAtUses has functions read again that the node uses otherwise than the snapshot
// says: no uevent comes with an address, a route, a bond or a mount.
func (w *Watcher) lookAtUses(ctx context.Context, snap *device.Snapshot) error {
	var addrs []pci.Address
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.Locked || !mayBeUsed(f) {
			continue
		}
		asleep, err := isPoweredDown(w.fs, f.Address)
		if err != nil {
			errs = append(errs, fmt.Errorf("look at the power state of PCI function %s: %w", f.Address, err))
		} else if !asleep {
			addrs = append(addrs, f.Address)
		}
	}
	if len(addrs) > 0 {
		_, err := w.Refresh(ctx, addrs)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mayBeUsed reports whether the node can begin or end a use of a function without a
// uevent.
func mayBeUsed(f *device.Function) bool {
	return len(f.Children.Net) > 0 || len(f.Children.Block) > 0 || len(f.Uses) > 0 || f.BootVGA
}

// isPoweredDown reports whether reading a function's registers would wake it. One that is gone
// is not.
func isPoweredDown(fs *sysfs.FS, addr pci.Address) (bool, error) {
	dir, _, err := openFunction(fs, addr, "")
	if err != nil {
		return false, notVanished(err)
	}
	defer dir.Close()
	a := &attributes{dir: dir}
	state, _ := a.text("power_state")
	return state == poweredDown, notVanished(a.err)
}
