package sysfstest

import (
	"bytes"
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// FallOff has a function answer nothing any more, as one that fell off the bus. It
// stays in sysfs, and no uevent tells of it.
func (k *Kernel) FallOff(a pci.Address) {
	k.SetConfig(a, 0, bytes.Repeat([]byte{0xff}, 64)...)
}

// CountFatalErrors has the kernel count that many fatal errors of a function in all.
func (k *Kernel) CountFatalErrors(a pci.Address, total int) {
	k.PutFile(path.Join("sys/bus/pci/devices", a.String(), "aer_dev_fatal"), fmt.Sprintf("DLP %d\nTOTAL_ERR_FATAL %[1]d\n", total))
}
