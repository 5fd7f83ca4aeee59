package prepare

import (
	"context"
	"errors"
	"io/fs"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// FatalErrors returns the functions that reported fatal errors which nothing accounts
// for: more than the kernel had counted when the function was last proven clean, or
// put to use again by an operator, in this boot. Errors that the kernel calls
// non-fatal don't count: they lose a transaction, not the device, and resets and a
// tenant's own driver cause them.
func (p *Preparer) FatalErrors(snap *device.Snapshot) (map[pci.Address]bool, error) {
	grown := journal.Unaccounted(snap, nil)
	if len(grown) == 0 {
		return grown, nil
	}
	marks, err := p.Journal.FatalErrors()
	if err != nil {
		return grown, err
	}
	return journal.Unaccounted(snap, marks), nil
}

// provenClean lifts the mark of a function that is proven clean, and accounts for the
// fatal errors that it reported before.
func (p *Preparer) provenClean(bootID string, a pci.Address) error {
	return errors.Join(p.accountForErrors(bootID, a), p.Journal.MarkClean(a))
}

// accountForErrors accounts for the fatal errors that the kernel has counted for a
// function so far. One without a counter, or that is gone, has none.
func (p *Preparer) accountForErrors(bootID string, a pci.Address) error {
	text, err := p.FS.ReadString(sysfs.FunctionPath(a) + "/aer_dev_fatal")
	if errors.Is(err, fs.ErrNotExist) || sysfs.Vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	count, ok := pci.ParseFatalErrors(text)
	if !ok || count == 0 {
		return nil
	}
	return p.Journal.MarkFatalErrors(journal.FatalErrors{Address: a, BootID: bootID, Count: count})
}

// accountForAll does so for functions that an operator puts to use again.
func (p *Preparer) accountForAll(ctx context.Context, addrs []pci.Address) error {
	snap, err := p.Inventory.Snapshot(ctx)
	for _, a := range addrs {
		if err == nil {
			err = p.accountForErrors(snap.Host.BootID, a)
		}
	}
	return err
}
