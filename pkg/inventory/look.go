package inventory

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// poweredDown is the power state in which a function does not answer. Reading its registers would wake it.
const poweredDown = "D3cold"

// Look checks whether the given functions still answer, whether they have a link, whether they reported fatal errors, what software has
// changed in ACS, ATS, PRI and PASID, and which parts of the node use them. It rescans functions that differ from the latest snapshot. The
// kernel sends no uevent for a device that falls off the bus, for a register that somebody writes, or for an address on an interface. Look
// reads a few bytes of each given function, and rescans functions with an interface or a disk [Lightly]. It leaves out what it can't read,
// and names it in the error.
func (w *Watcher) Look(ctx context.Context, meant func(*device.Function) bool) error {
	snap := w.latest.Load()
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.Locked || !meant(f) { // a locked function is already retried
			continue
		}
		same, err := soundAsBefore(w.fs, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("look at PCI function %s: %w", f.Address, err))
		}
		if !same {
			w.changed.add(subject{subsystem: "pci", path: f.Address.String()})
		}
	}
	return errors.Join(append(errs, w.lookAtUses(ctx, snap))...)
}

// soundAsBefore reports whether a function's condition and the switches in its capabilities are the same as before.
func soundAsBefore(fs *sysfs.FS, before *device.Function) (bool, error) {
	dir, _, err := openFunction(fs, before.Address, "")
	if err != nil {
		return !sysfs.Vanished(err), notVanished(err)
	}
	defer dir.Close()
	a := &attributes{dir: dir}
	// Reading its registers would resume the device (drivers/pci/pci-sysfs.c pci_read_config) and keep it from sleeping.
	if state, _ := a.text("power_state"); state == poweredDown {
		return true, a.err
	}
	now := device.Function{Address: before.Address, FatalErrors: readFatalErrors(a)}
	if before.VF == nil {
		now.Link = readLink(a)
	}
	header, switches, read := readSpace(&now, a, headerBytes, before.Capabilities.Switches)
	now.ConfigDead = read && pci.Dead(header, before.VF != nil)
	if a.err != nil || now.Locked || !read {
		return !sysfs.Vanished(a.err), notVanished(a.err)
	}
	same := now.ConfigDead == before.ConfigDead && now.LinkDown() == before.LinkDown() && now.FatalErrors == before.FatalErrors
	return same && (now.ConfigDead || switchedAsBefore(before.Capabilities, switches)), nil
}

// switchedAsBefore reports whether the switches in the capabilities, which software can change, are the same as before.
func switchedAsBefore(before pci.Capabilities, registers [][]byte) bool {
	now, same := before.Reread(registers)
	return same && reflect.DeepEqual(now, before)
}

// notVanished returns err, or nil if it says that the function no longer exists.
func notVanished(err error) error {
	if sysfs.Vanished(err) {
		return nil
	}
	return err
}

// readFatalErrors reads how many fatal errors the kernel counted; 0 if the kernel does not count them.
func readFatalErrors(a *attributes) uint64 {
	text, _ := a.text("aer_dev_fatal")
	total, _ := pci.ParseFatalErrors(text)
	return total
}

// lookAtUses reads those functions again whose use by the node may have changed: the kernel sends no uevent for an address, a route, a bond
// or a mount.
func (w *Watcher) lookAtUses(ctx context.Context, snap *device.Snapshot) error {
	var addrs []pci.Address
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.Locked || !mayBeUsed(f) {
			continue
		}
		// A read of configuration space resumes a suspended device (pci_config_pm_runtime_get in drivers/pci/pci.c).
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

// mayBeUsed reports whether the node can start or stop using a function without a uevent.
func mayBeUsed(f *device.Function) bool {
	return len(f.Children.Net) > 0 || len(f.Children.Block) > 0 || len(f.Uses) > 0 || f.BootVGA
}

// isPoweredDown reports whether reading a function's registers would wake it. A function that does not exist is not
// powered down.
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
