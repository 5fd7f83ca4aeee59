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

// poweredDown is the power state in which a function answers nothing, and a look
// at its registers would wake it.
const poweredDown = "D3cold"

// Look checks whether the given functions still answer, have a link and reported fatal errors, what software has switched
// of ACS, ATS, PRI and PASID, and which parts of the node use each function. It rescans those that differ from the latest
// snapshot: the kernel sends no uevent for a device that falls off the bus or a register that somebody writes, nor for
// an address on its interface. It reads a few bytes of each given function,
// and reads those with an interface or a disk [Lightly]. What can't be read is left out, and named in the error.
func (w *Watcher) Look(ctx context.Context, meant func(*device.Function) bool) error {
	snap := w.latest.Load()
	var errs []error
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.Locked || !meant(f) { // a locked one is read again already
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

// soundAsBefore reports whether a function is as well or unwell as it was, and switched as it was.
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

// switchedAsBefore reports whether software has switched nothing of the capabilities.
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

// readFatalErrors reads how many fatal errors the kernel counted; 0 where it counts none.
func readFatalErrors(a *attributes) uint64 {
	text, _ := a.text("aer_dev_fatal")
	total, _ := pci.ParseFatalErrors(text)
	return total
}

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

// mayBeUsed reports whether the node can begin or end a use of a function without a
// uevent.
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
