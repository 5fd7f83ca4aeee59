package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// writable checks that the root's sys is the kernel's, and writable for this process.
func writable(root string) error {
	sys := filepath.Join(root, "sys")
	var stat unix.Statfs_t
	if err := unix.Statfs(sys, &stat); err != nil {
		return command.Usagef("look at %s: %w; --root names the directory that holds the node's sys", sys, err)
	}
	// access(2) checks the real user, but a write is checked for the effective one. On a read-only mount, both fail
	// with EROFS even for root.
	access := unix.Faccessat(unix.AT_FDCWD, filepath.Join(sys, "bus/pci/drivers_probe"), unix.W_OK, unix.AT_EACCESS)
	return whyNot(sys, stat.Type == unix.SYSFS_MAGIC, access)
}

// whyNot returns the obstacle to work on sys, and the fix. It refuses a plain
// directory, whose files accept every write without effect.
func whyNot(sys string, kernels bool, access error) error {
	switch {
	case !kernels:
		return command.Usagef("%s is a plain directory and not the kernel's sysfs: there is nothing to bind; "+
			"plan, status and --dry-run work on such a tree", sys)
	case errors.Is(access, unix.EROFS):
		return fmt.Errorf("%s is mounted read-only: mount it read-write into this container, or run it privileged", sys)
	case errors.Is(access, unix.EACCES), errors.Is(access, unix.EPERM):
		return fmt.Errorf("no privilege to write to %s: run as root (sudo kata-vfio-plugin ...)", sys)
	case errors.Is(access, unix.ENOENT):
		return fmt.Errorf("%s has no PCI bus (bus/pci/drivers_probe): this node has no PCI devices, or its sys is elsewhere (--root)", sys)
	case access != nil:
		return fmt.Errorf("look at %s/bus/pci/drivers_probe: %w", sys, access)
	}
	return nil
}
