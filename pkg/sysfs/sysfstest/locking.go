package sysfstest

import (
	"os"
	"path"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// LockingReads names the attributes that the kernel shows under the device lock, so
// that reading them blocks while an unbind, a probe or a reset hangs.
type LockingReads []string

// OlderKernel is how Linux reads until driver_override became an attribute of all
// devices: under the device lock (drivers/pci/pci-sysfs.c driver_override_show).
func OlderKernel() LockingReads { return LockingReads{"driver_override"} }

// MiddleKernel is v5.5 to v6.8, where sriov_numvfs is shown under the device lock too
// (drivers/pci/iov.c sriov_numvfs_show).
func MiddleKernel() LockingReads { return LockingReads{"driver_override", "sriov_numvfs"} }

// NewerKernel shows all of them without it: driver_override has a spinlock of its
// own (drivers/base/bus.c driver_override_show), also in stable kernels since 2026.
func NewerKernel() LockingReads { return nil }

// patience is how long package sysfs waits for a device lock.
const patience = 2 * time.Second

// Reading returns fs, which has the node's root, with reads that block as the
// kernel's do: while a function's device lock is held, reading one of its attributes
// takes the two seconds that package sysfs waits, and ends with [sysfs.ErrLocked]. On
// every kernel the configuration space is read like that while a reset is under way.
func (k *Kernel) Reading(fs *sysfs.FS, locking LockingReads) *sysfs.FS {
	return fs.WithCopy(&reader{k: k, locking: locking})
}

// A reader answers reads in the place of the tree where they would block.
type reader struct {
	k       *Kernel
	locking LockingReads
}

// Answer implements [sysfs.Copy].
func (r *reader) Answer(op sysfs.Op, name string) error {
	dir, attribute := path.Split(name)
	if op != sysfs.OpRead {
		return nil
	}
	a, err := pci.ParseAddress(path.Base(dir))
	if err != nil || !r.blocks(a, attribute) {
		return nil
	}
	<-time.After(patience)
	if r.blocks(a, attribute) {
		return sysfs.ErrLocked
	}
	return nil
}

// blocks reports whether reading the attribute would block now.
func (r *reader) blocks(a pci.Address, attribute string) bool {
	if attribute == "config" {
		return r.k.isResetting(a)
	}
	return slices.Contains(r.locking, attribute) && r.k.isLocked(a)
}

// Names implements [sysfs.Copy].
func (r *reader) Names(name string) ([]string, error) {
	entries, err := os.ReadDir(r.k.Path(name))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// isLocked reports whether somebody has the function's device lock.
func (k *Kernel) isLocked(a pci.Address) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	return f != nil && len(f.lock) > 0
}

// isResetting reports whether a reset keeps everybody from the function's
// configuration space.
func (k *Kernel) isResetting(a pci.Address) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[a]
	return f != nil && f.resets > 0
}
