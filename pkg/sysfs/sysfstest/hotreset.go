package sysfstest

import (
	"context"
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// HotReset resets all functions below the bridge above the set, as a user of
// VFIO_DEVICE_PCI_HOT_RESET does that opens their groups (drivers/vfio/pci/vfio_pci_core.c
// vfio_pci_dev_set_hot_reset): EPERM for a function that is not on a VFIO driver,
// EBUSY for a group that a process has open, EINVAL unless the set has all
// functions that the reset reaches, EINVAL for one without a bridge above it.
//
// Like the ioctl it ends when the hooks of [Kernel.OnReset] have, whatever becomes
// of the context.
func (k *Kernel) HotReset(_ context.Context, set []pci.Address) error {
	functions, err := k.together(set)
	if err != nil {
		return err
	}
	for _, f := range functions { // by address, as pci_bus_lock goes
		f.acquire()
		defer f.release()
	}
	defer k.blockConfig(functions...)()
	var errs error
	for _, f := range functions {
		errs = errors.Join(errs, k.reset(f, "vfio_hot_reset"))
	}
	return errs
}

// together returns the functions of the set by address, if a hot reset of them
// all may begin.
func (k *Kernel) together(set []pci.Address) ([]*function, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	functions := make([]*function, 0, len(set))
	for _, a := range set {
		f := k.functions[a]
		if f == nil || f.driver == nil || !f.driver.VFIO {
			return nil, unix.EPERM
		}
		if k.owned(f.group) {
			return nil, unix.EBUSY
		}
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b *function) int { return a.Address.Compare(b.Address) })
	functions = slices.Compact(functions)
	for _, f := range functions {
		if reached := k.reached(f); reached == nil || !slices.Equal(reached, functions) {
			return nil, unix.EINVAL
		}
	}
	return functions, nil
}

// reached returns the functions below the bridge right above f, by address, nil
// where there is no bridge. VFs go with their PF. Callers hold mu.
func (k *Kernel) reached(f *function) []*function {
	var bridge *function
	for _, other := range k.functions {
		if other.bridge != nil && path.Dir(f.dir) == other.dir {
			bridge = other
		}
	}
	if bridge == nil {
		return nil
	}
	return slices.DeleteFunc(k.behind(bridge), func(other *function) bool { return other.pf != nil })
}
