package effects

import (
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// If the kernel removes a function, the function is gone for its record, even if another one, or the same one found
// again, is at the address now. No effect touches such an address.

// GoneError says that a function of a record is gone. It matches [sysfs.ErrNoFunction].
type GoneError struct {
	Address pci.Address
	// Replaced is set if something is at its address.
	Replaced bool
}

func (e *GoneError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("%s is another device now, or was removed and found again: %s", e.Address, sysfs.ErrNoFunction)
	}
	return fmt.Sprintf("%s: %s", e.Address, sysfs.ErrNoFunction)
}

func (e *GoneError) Unwrap() error { return sysfs.ErrNoFunction }

// CheckFunction returns a [GoneError] for a function that is gone.
func (set *Set) CheckFunction(fn *plan.Function) error {
	inode, err := set.FS.FunctionInode(fn.Address)
	switch {
	case errors.Is(err, sysfs.ErrNoFunction):
		return &GoneError{Address: fn.Address}
	case err != nil:
		return err
	case !fn.Identity.Is(device.Identity{BootID: fn.Identity.BootID, Inode: inode}):
		return &GoneError{Address: fn.Address, Replaced: true}
	}
	return nil
}

// open opens a function of a record for work on it, or returns a [GoneError].
func (set *Set) open(fn *plan.Function) (*bind.Function, error) {
	f, err := set.Executor.Open(fn.Address)
	if err != nil {
		return nil, gone(fn, err)
	}
	// The address alone does not identify a function: after a hot plug, another card can have it. The inode of the
	// sysfs directory changes with each device that the kernel adds.
	inode, err := f.Inode()
	if err == nil && !fn.Identity.Is(device.Identity{BootID: fn.Identity.BootID, Inode: inode}) {
		err = &GoneError{Address: fn.Address, Replaced: true}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// gone returns a [GoneError] in place of an error that says that the function does not exist. It returns other errors
// unchanged.
func gone(fn *plan.Function, err error) error {
	if _, is := errors.AsType[*GoneError](err); !is && errors.Is(err, sysfs.ErrNoFunction) {
		return &GoneError{Address: fn.Address}
	}
	return err
}

// CheckFunctions is [Set.CheckFunction] of all functions of a record.
func (set *Set) CheckFunctions(rec *journal.Record) error {
	for i := range rec.Plan.Functions {
		if err := set.CheckFunction(&rec.Plan.Functions[i]); err != nil {
			return fmt.Errorf("claim %s: %w; delete its pod, so that the claim is allocated again", rec.Plan.Claim, err)
		}
	}
	return nil
}

// present returns the functions of a record at addrs that are not gone.
func (set *Set) present(rec *journal.Record, addrs []pci.Address) ([]pci.Address, error) {
	var left []pci.Address
	for _, a := range addrs {
		fn, ok := rec.Plan.Function(a)
		if !ok {
			return nil, fmt.Errorf("claim %s: %s is none of its functions", rec.Plan.Claim, a)
		}
		err := set.CheckFunction(fn)
		if err != nil && !errors.Is(err, sysfs.ErrNoFunction) {
			return nil, err
		}
		if err == nil {
			left = append(left, a)
		}
	}
	return left, nil
}

// isGone reports whether a function is gone. It looks at the function, because a write to a function that is being
// removed can fail with many different errors.
func (set *Set) isGone(fn *plan.Function) bool {
	return errors.Is(set.CheckFunction(fn), sysfs.ErrNoFunction)
}

// AllGone reports whether all functions of a record are gone.
func (set *Set) AllGone(rec *journal.Record) bool {
	left, err := set.present(rec, rec.Plan.Addresses())
	return err == nil && len(left) == 0
}
