package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Disks asks the running kernel about the disks of a function.
type Disks interface {
	// Claimed returns the device node of a disk that is opened exclusively, or "". Proc and sysfs do not show all such disks:
	// members of ZFS pools and of btrfs file systems, and DRBD's disks, are mounted under no name of their own.
	Claimed(ctx context.Context, f *device.Function) (node string, err error)
}

// keepInUse returns the blueprint with the functions in vfio.keepOff that vfio.keepOff names or vfio.keepOffMatching selects.
// It leaves out the functions that the node needs, and returns a problem for each of them. An image without the node's /sys
// does not show what the node will use, or which functions match.
func (e *Engine) keepInUse(ctx context.Context, b *blueprint.Blueprint) (*blueprint.Blueprint, []state.Problem) {
	if !b.VFIO.KeepsOff() {
		return b, nil
	}
	snapshot, err := inventory.Scan(ctx, e.Tree)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, host.Unmatched(b) // without PCI functions, package host reports each one as missing
	case err != nil:
		none := *b
		none.VFIO.KeepOff = nil
		return &none, []state.Problem{{
			Part: "udev", Code: rule.UseUnknown, Fatal: true, Text: "it is unknown whether the node uses the functions of vfio.keepOff: " + err.Error(),
			Fix: "run bootstrap as root on the node, or remove vfio.keepOff from the blueprint",
		}}
	}
	disks := map[pci.Address]host.DiskUse{}
	kept := host.Kept(b, snapshot)
	for _, k := range kept {
		if f, there := snapshot.Function(k.Address); there && len(f.Children.Block) > 0 {
			disks[k.Address] = e.diskUse(ctx, f)
		}
	}
	return host.KeepInUse(b, kept, snapshot, disks)
}

// diskUse returns how the node uses a function's disks according to the kernel or, if it can't be asked, according to
// the tree.
func (e *Engine) diskUse(ctx context.Context, f *device.Function) host.DiskUse {
	if e.Disks == nil {
		return e.shownUse(f)
	}
	node, err := e.Disks.Claimed(ctx, f)
	switch {
	case err != nil:
		return host.DiskUse{Unknown: err.Error()}
	case node != "":
		return host.DiskUse{Used: fmt.Sprintf("%s is opened exclusively (a mount, swap, LVM, RAID, ZFS, btrfs, DRBD or a program)", node)}
	}
	return host.DiskUse{}
}

// shownUse returns the use of disks that no mount names, according to the tree. /sys/fs/btrfs has the devices of each
// mounted btrfs (fs/btrfs/sysfs.c). No file shows the members of a ZFS pool: /etc/zfs/zpool.cache is a packed list that
// only ZFS's own library reads.
func (e *Engine) shownUse(f *device.Function) host.DiskUse {
	for _, disk := range f.Children.Block {
		name, err := e.btrfsOn(disk)
		switch {
		case err != nil:
			return host.DiskUse{Unknown: err.Error()}
		case name != "":
			return host.DiskUse{Used: fmt.Sprintf("block device %s is part of a btrfs (/sys/fs/btrfs)", name)}
		}
	}
	for _, sign := range []string{"sys/module/zfs", "etc/zfs/zpool.cache"} {
		if e.exists(sign) {
			return host.DiskUse{Unknown: fmt.Sprintf("the node has ZFS (/%s), and only its running kernel knows the disks of ZFS pools", sign)}
		}
	}
	return host.DiskUse{}
}

// btrfsOn returns the disk, or the partition of it, that is part of a mounted btrfs; "" if none is.
func (e *Engine) btrfsOn(disk string) (string, error) {
	const all = "sys/fs/btrfs"
	systems, err := e.members(all)
	if err != nil {
		return "", err
	}
	parts, err := e.members("sys/class/block/" + disk)
	if err != nil {
		return "", err
	}
	for _, system := range systems {
		devices, err := e.members(all + "/" + system + "/devices")
		if err != nil {
			return "", err
		}
		for _, name := range devices {
			// In sysfs, a partition is a directory of its disk: nvme0n1/nvme0n1p2.
			if name == disk || strings.HasPrefix(name, disk) && slices.Contains(parts, name) {
				return name, nil
			}
		}
	}
	return "", nil
}

// members lists a directory. A missing one is empty; so is a file, such as /sys/fs/btrfs/features.
func (e *Engine) members(dir string) ([]string, error) {
	info, err := e.Tree.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !info.IsDir() {
		return nil, err
	}
	return e.Tree.ReadDir(dir)
}

func (e *Engine) exists(name string) bool {
	_, err := e.Tree.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
