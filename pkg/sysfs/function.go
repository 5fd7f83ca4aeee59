package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ErrNoFunction is the error for an address without a PCI function: it was unplugged, its VFs were disabled, or it never
// existed.
var ErrNoFunction = errors.New("no such PCI function")

// Devices is the directory of the kernel's PCI functions, one link for each.
const Devices = "sys/bus/pci/devices"

// FunctionPath returns the path of a function's directory.
func FunctionPath(a pci.Address) string { return Devices + "/" + a.String() }

// Driver returns the name of the kernel driver that is bound to the function,
// empty if there is none, or [ErrNoFunction].
func (f *FS) Driver(a pci.Address) (string, error) {
	target, err := f.ReadLink(FunctionPath(a) + "/driver")
	if err != nil {
		return "", f.absent(a, err)
	}
	return path.Base(target), nil
}

// Binding returns the driver that is bound to the function, and its override: the only driver that may bind it. Each is
// empty if there is none. Its error may be [ErrNoFunction], or [ErrLocked] if an unbind of the function hangs.
func (f *FS) Binding(a pci.Address) (driver, override string, err error) {
	dir, err := f.OpenFunction(a)
	if err != nil {
		return "", "", err
	}
	defer dir.Close()
	return dir.Binding(a)
}

// OpenFunction opens the function's directory; Close it. Its error may be [ErrNoFunction].
func (f *FS) OpenFunction(a pci.Address) (*Dir, error) {
	dir, err := f.OpenDir(FunctionPath(a))
	if err != nil {
		return nil, f.gone(a, err)
	}
	return dir, nil
}

// There returns [ErrNoFunction] if the function at a, whose directory is d, was removed after d was opened. It does so
// even if another function is at that address now.
func (d *Dir) There(a pci.Address) error {
	_, exists, err := d.Entry("vendor") // every function has a vendor, and the directory of a removed function is empty
	if err == nil && !exists || err != nil && Vanished(err) {
		return fmt.Errorf("%s: %w", a, ErrNoFunction)
	}
	return err
}

// Binding is [FS.Binding] of the function at a, whose directory d is.
func (d *Dir) Binding(a pci.Address) (driver, override string, err error) {
	if driver, err = d.driver(a); err != nil {
		return "", "", d.gone(a, err)
	}
	override, err = d.Override(a)
	return driver, override, err
}

// Driver is [FS.Driver] of the function at a, whose directory d is.
func (d *Dir) Driver(a pci.Address) (string, error) {
	target, bound, err := d.Link("driver")
	switch {
	case err != nil:
		return "", d.gone(a, err)
	case bound:
		return path.Base(target), nil
	}
	// A removed function has no link either, so a look for the function tells the two apart.
	return "", d.There(a)
}

// HasVFIODevice reports whether a driver has made a VFIO device for the function with directory d
// (Documentation/ABI/testing/sysfs-devices-vfio-dev). VFIO's drivers make one for each function, and a vendor's driver
// may make one for its VFs.
func (d *Dir) HasVFIODevice() (bool, error) {
	dev, ok, err := d.Sub("vfio-dev")
	if ok {
		dev.Close()
	}
	return ok, err
}

// gone returns [ErrNoFunction] in place of err if the function has been removed.
func (d *Dir) gone(a pci.Address, err error) error {
	if !Vanished(err) {
		return err
	}
	return cmp.Or(d.There(a), err)
}

// driver returns the driver of the function at a, whose directory is d. If the function has no driver link, it checks
// that the function really has no driver: an unbind by another process may hang in the kernel.
func (d *Dir) driver(a pci.Address) (string, error) {
	target, bound, err := d.Link("driver")
	if bound || err != nil {
		return path.Base(target), err
	}
	leaving, err := d.Detaching(a)
	if err == nil && leaving != "" {
		err = fmt.Errorf("unbind %s from %s: %w", a, leaving, ErrLocked)
	}
	return "", err
}

// DriverOverride returns the only driver that the function may be bound to,
// empty when it is not set; or [ErrNoFunction], or [ErrLocked].
func (f *FS) DriverOverride(a pci.Address) (string, error) {
	text, err := f.lockedText(a, "driver_override")
	return overrideName(text), err
}

// DriverOverride returns what [FS.DriverOverride] returns, but reads from the function's open directory. It is also
// empty if the function has been removed.
func (d *Dir) DriverOverride(a pci.Address) (string, error) {
	text, _, err := d.LockedText(a, "driver_override")
	return overrideName(text), err
}

// Override is [FS.DriverOverride] of the function at a, whose directory d is.
func (d *Dir) Override(a pci.Address) (string, error) {
	text, ok, err := d.LockedText(a, "driver_override")
	if err == nil && !ok { // the function was removed, or the kernel has no overrides
		err = d.There(a)
	}
	return overrideName(text), d.gone(a, err)
}

// overrideName undoes the kernel's "%s" of a null pointer, which is how an
// unset driver_override prints (drivers/pci/pci-sysfs.c driver_override_show).
func overrideName(text string) string {
	if text == "(null)" {
		return ""
	}
	return text
}

// FunctionInode returns the inode number of the function's directory, as [Dir.Inode] does; or [ErrNoFunction].
func (f *FS) FunctionInode(a pci.Address) (uint64, error) {
	if !f.hasInodes() {
		return 0, nil
	}
	info, err := f.Stat(FunctionPath(a))
	if err != nil {
		return 0, f.gone(a, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: its directory has no inode number", a)
	}
	return stat.Ino, nil
}

// ConfigSpace returns the readable part of the function's configuration space: 64 bytes without CAP_SYS_ADMIN, otherwise
// 256 or 4096. The error is [ErrNoFunction] or [ErrLocked].
func (f *FS) ConfigSpace(a pci.Address) ([]byte, error) { return f.ConfigHead(a, pageBytes) }

// ConfigHead returns the first n bytes of the function's configuration space, or as many as are readable. The error may
// be [ErrNoFunction] or [ErrLocked]. The kernel reads the space from the device word by word, so a small n is much
// faster than the whole space.
func (f *FS) ConfigHead(a pci.Address, n int) ([]byte, error) {
	data, err := f.lockedFile(a, "config", n)
	if err != nil {
		return nil, f.gone(a, err)
	}
	return data, nil
}

// GroupNumber returns the function's IOMMU group, false if it has none, or
// [ErrNoFunction].
func (f *FS) GroupNumber(a pci.Address) (number int, ok bool, err error) {
	target, err := f.ReadLink(FunctionPath(a) + "/iommu_group")
	if err != nil {
		return 0, false, f.absent(a, err)
	}
	return groupNumber(a, target)
}

// GroupNumber is [FS.GroupNumber] of the function at a, whose directory d is.
func (d *Dir) GroupNumber(a pci.Address) (number int, ok bool, err error) {
	target, ok, err := d.Link("iommu_group")
	switch {
	case err != nil:
		return 0, false, d.gone(a, err)
	case !ok:
		return 0, false, d.There(a)
	}
	return groupNumber(a, target)
}

func groupNumber(a pci.Address, target string) (number int, ok bool, err error) {
	number, err = strconv.Atoi(path.Base(target))
	if err != nil {
		return 0, false, fmt.Errorf("iommu_group of %s leads to %s, which ends in no group number", a, target)
	}
	return number, true, nil
}

// absent turns the error for a missing attribute into nil if the function itself exists, and otherwise into
// ErrNoFunction.
func (f *FS) absent(a pci.Address, err error) error {
	if errors.Is(err, errNoEntry) { // its directory was there
		return nil
	}
	err = f.gone(a, err)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// gone replaces err by ErrNoFunction if err reports a missing file and the function does not exist either.
func (f *FS) gone(a pci.Address, err error) error {
	if !Vanished(err) {
		return err
	}
	there, statErr := f.Exists(FunctionPath(a))
	if statErr != nil {
		return statErr
	}
	if !there {
		return fmt.Errorf("%s: %w", a, ErrNoFunction)
	}
	return err
}

// Vanished reports whether err is the kernel's answer for an attribute of a removed device: ENOENT for its path, ENODEV
// (or ENXIO) for a file that was already open.
func Vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}
