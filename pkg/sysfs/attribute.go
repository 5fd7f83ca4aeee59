package sysfs

import (
	"errors"
	"fmt"
	gopath "path"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ReadAttribute is [FS.ReadAtMost], for files of which some may be attributes of PCI functions that the kernel reads
// under the function's device lock (uevent, driver_override) or that the device may never answer (vpd). Locked says that
// such an attribute can't be read now; the error then matches [ErrLocked]. Of an attribute it returns a page at most.
func (f *FS) ReadAttribute(path string, n int64) (data []byte, locked bool, err error) {
	a, err := pci.ParseAddress(gopath.Base(gopath.Dir(path)))
	if err != nil {
		data, err = f.ReadAtMost(path, n)
		return data, false, err
	}
	data, err = f.lockedRead(lockedAttribute{a, gopath.Base(path)}, path, int(min(n, pageBytes)))
	if err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err); err != nil {
		return nil, errors.Is(err, ErrLocked), fmt.Errorf("read %s: %w", path, err)
	}
	return data, false, nil
}
