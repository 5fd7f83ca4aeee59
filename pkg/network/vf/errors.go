package vf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// NoInterfaceError says that a PF has no network interface that the plugin can see, so nothing can be set on its VFs.
type NoInterfaceError struct {
	PF pci.Address
	// Driver is the PF's driver, or empty.
	Driver string
}

func (e *NoInterfaceError) Error() string {
	if e.Driver == "" {
		return fmt.Sprintf("PF %s has no driver and so no network interface; bind it to its driver", e.PF)
	}
	return fmt.Sprintf("PF %s (driver %s) has no network interface on this node; if it was moved into another network namespace, move it back", e.PF, e.Driver)
}

// SettingError says that a setting of a VF could not be made.
type SettingError struct {
	PF      pci.Address
	Index   int
	Setting device.VFSetting
	// Want is the requested value.
	Want string
	// Got is the value that the PF reports, although it accepted the setting without an error. It is empty if the PF
	// does not report one.
	Got string
	// Err is the kernel's error, or nil if it accepted the setting.
	Err error
	// NoCarrier: the PF has no link. Some drivers accept no rates without one (igb compares them with the link's
	// speed).
	NoCarrier bool
	// Switchdev: the PF is in switchdev mode, and Representor is the VF's interface on the node.
	Switchdev   bool
	Representor string
}

func (e *SettingError) Error() string {
	what := fmt.Sprintf("set %s of VF %d of PF %s to %s", e.Setting, e.Index, e.PF, e.Want)
	switch {
	case e.NeedsLink():
		return what + ": the PF's driver refuses this while the PF has no link"
	case e.Unsupported() && e.Switchdev:
		return fmt.Sprintf("%s: PF %s is in switchdev mode: this is the business of the VF's representor %s, of its bridge or its rules", what, e.PF, e.Representor)
	case e.Unsupported():
		return what + ": the PF's driver does not support this setting"
	case e.Err != nil:
		return what + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s: the PF took it and says %q", what, e.Got)
}

func (e *SettingError) Unwrap() error { return e.Err }

// Unsupported reports whether the PF's driver does not support the setting or the value: it does not report it, or
// returns an error that says so. Drivers return EINVAL for values that are valid by the kernel's own rules.
func (e *SettingError) Unsupported() bool {
	if e.NeedsLink() {
		return false
	}
	return e.Err == nil && e.Got == "" || errors.Is(e.Err, unix.EOPNOTSUPP) || errors.Is(e.Err, unix.EPROTONOSUPPORT) || errors.Is(e.Err, unix.EINVAL)
}

// NeedsLink reports whether the driver may accept the setting once the PF has a link.
func (e *SettingError) NeedsLink() bool { return e.NoCarrier && errors.Is(e.Err, unix.EINVAL) }
