package vfio

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Claimed returns the node of a disk of f that somebody has for himself, empty
// when there is none: a mount in any namespace, swap, RAID, device-mapper, ZFS,
// or a process that opened it exclusively. It is the kernel's own answer
// (open(2) with O_EXCL on a block device) and knows more than
// [device.Function.Uses], which is read from what proc shows.
//
// Asking claims each disk for a moment, and a mount that is tried in that
// moment fails: so ask only for a function that is about to be taken.
func Claimed(ctx context.Context, fs *sysfs.FS, f *device.Function) (node string, err error) {
	for _, disk := range f.Children.Block {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		node := "/dev/" + disk
		claimed, err := isClaimed(filepath.Join(fs.Path(), node))
		if err != nil {
			return "", fmt.Errorf("ask who has %s: %w", node, err)
		}
		if claimed {
			return node, nil
		}
	}
	return "", nil
}

// isClaimed reports whether a block device can't be opened exclusively. A disk
// can't while one of its partitions is claimed. One that is gone is free.
func isClaimed(node string) (bool, error) {
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EBUSY):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return false, nil
	}
	return false, err
}
