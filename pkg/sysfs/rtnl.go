package sysfs

import (
	"fmt"
	"strings"
)

// rtnl stands for all attributes of network interfaces that the kernel reads under RTNL, the one lock of all interfaces.
// While one read of them hangs, all others would hang too.
func rtnl() lockedAttribute { return lockedAttribute{name: "rtnl"} }

// InterfaceText reads an attribute of a network interface that the kernel reads under RTNL, such as phys_port_name
// (net/core/net-sysfs.c). Path is below the root. The error is [ErrLocked] if the lock is unavailable.
func (f *FS) InterfaceText(path string) (string, error) {
	data, err := f.lockedRead(rtnl(), path, pageBytes)
	if err = f.observed(Access{Op: OpRead, Path: path, Data: data}, err); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// InterfaceText is [FS.InterfaceText] of an attribute in the directory d of an interface. It returns false if the
// attribute is absent.
func (d *Dir) InterfaceText(name string) (text string, ok bool, err error) {
	return d.lockedText(rtnl(), name)
}
