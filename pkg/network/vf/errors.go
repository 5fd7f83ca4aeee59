package vf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// NoInterfaceError says that a PF has no network interface where the plugin
// can see it, so that nothing can be imposed on its VFs.
type NoInterfaceError struct {
	PF pci.Address
	// Driver is the PF's, empty for none.
	Driver string
}

func (e *NoInterfaceError) Error() string {
	if e.Driver == "" {
		return fmt.Sprintf("PF %s has no driver and so no network interface; bind it to its driver", e.PF)
	}
	return fmt.Sprintf("PF %s (driver %s) has no network interface on this node; if it was moved into another network namespace, move it back", e.PF, e.Driver)
}

// SettingError says that a setting of a VF could not be had.
type SettingError struct {
	PF      pci.Address
	Index   int
	Setting device.VFSetting
	// Want is the value asked for.
	Want string
	// Got is the value that the PF reports although it accepted the setting without an error; empty if it does not
	// report one.
	Got string
	// Err is the kernel's word, nil where it took the setting.
	Err error
	// NoCarrier is set where the PF has no link, without which some drivers take
	// no rates (igb compares them with the link's speed).
	NoCarrier bool
	// Switchdev is set where the PF is in switchdev mode, and Representor is the
	// VF's interface on the node then.
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

// Unsupported reports whether the PF's driver has no such setting, or not this
// value of it: it does not report it, or the kernel says so. Drivers answer
// EINVAL for a value that is right by the kernel's own rules.
func (e *SettingError) Unsupported() bool {
	if e.NeedsLink() {
		return false
	}
	return e.Err == nil && e.Got == "" || errors.Is(e.Err, unix.EOPNOTSUPP) || errors.Is(e.Err, unix.EPROTONOSUPPORT) || errors.Is(e.Err, unix.EINVAL)
}

// NeedsLink reports whether the driver may take the setting once the PF has a
// link.
func (e *SettingError) NeedsLink() bool { return e.NoCarrier && errors.Is(e.Err, unix.EINVAL) }
