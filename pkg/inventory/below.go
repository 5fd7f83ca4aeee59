package inventory

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// The kernel's lists of devices grow with the node, while a claim concerns few functions. For few functions it is cheaper to walk through
// their own directories, which contain the same devices.

// fewFunctions is the largest number of functions for which a walk through their directories costs less than reading the node's lists.
const fewFunctions = 8

// isSmall reports whether the scan is a rescan of few functions.
func (s *scan) isSmall(fresh []*device.Function) bool {
	return len(s.base.Functions) > 0 && len(fresh) <= fewFunctions
}

// adoptBelow does the same as adoptListed by a walk through the functions' own directories. A block device may be elsewhere in the tree, so
// adoptBelow reads the list of block devices if a function may have some.
func (s *scan) adoptBelow(o owners) error {
	disks := false
	for _, f := range o {
		b := &below{fs: s.fs, f: f}
		if err := b.adopt(); err != nil {
			return err
		}
		disks = disks || b.disks || len(f.Children.NVMe) > 0
	}
	if !disks {
		return nil
	}
	return s.adoptBlock(o)
}

// below walks through the devices below a function. It leaves out devices below another function.
type below struct {
	fs *sysfs.FS
	f  *device.Function
	// disks is set if there is a block device, or a controller of block devices.
	disks bool
}

// adopt finds the devices of the function. Ports have none, and a VFIO driver creates only one.
func (b *below) adopt() error {
	c := &b.f.Children
	switch {
	case b.f.Class.Sub() == pci.ClassPCIBridge:
		return nil
	case device.IsVFIO(b.f.Driver):
		if c.VFIO != "" {
			c.Nodes = append(c.Nodes, "vfio/devices/"+c.VFIO)
		}
		return nil
	}
	dir, err := b.fs.OpenDir(sysfs.FunctionPath(b.f.Address))
	if err != nil {
		return notVanished(err)
	}
	defer dir.Close()
	_, dirs, err := dir.Subdirs()
	if err != nil {
		return notVanished(err)
	}
	return b.walk(dir, dirs)
}

// walk goes through directories in dir.
func (b *below) walk(dir *sysfs.Dir, names []string) error {
	for _, name := range names {
		if hasNoDevices(name) {
			continue
		}
		sub, ok, err := dir.Sub(name)
		if errors.Is(err, unix.ENOTDIR) || err == nil && !ok {
			continue
		}
		if err != nil {
			return err
		}
		err = b.visit(sub)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// hasNoDevices reports whether a directory contains no devices of the function: the devices below another function or root bus belong to
// that one, and the other directories hold only attributes.
func hasNoDevices(name string) bool {
	switch name {
	case "power", "msi_irqs", "statistics", "queues":
		return true
	}
	_, err := pci.ParseAddress(name)
	return err == nil || isRoot(name)
}

// visit records the devices in a directory, which may be a device itself.
func (b *below) visit(dir *sysfs.Dir) error {
	names, dirs, err := dir.Subdirs()
	if err != nil {
		return notVanished(err)
	}
	if path.Base(path.Dir(dir.Path())) == "net" {
		err = b.takeNet(dir)
	}
	// The attribute dev is the number of a device's node.
	if err == nil && slices.Contains(names, "dev") {
		err = b.takeNode(dir)
	}
	if err != nil {
		return err
	}
	return b.walk(dir, dirs)
}

// takeNet records a netdev below another device of the function. readNet records those directly below the function.
func (b *below) takeNet(dir *sysfs.Dir) error {
	name := path.Base(dir.Path())
	if slices.Contains(b.f.Children.Net, name) {
		return nil
	}
	a := &attributes{dir: dir}
	if a.link("subsystem") != "net" {
		return a.err
	}
	b.f.Children.Net = append(b.f.Children.Net, name)
	b.f.Uses = append(b.f.Uses, masters(name, uppers(a))...)
	return a.err
}

// takeNode records a device that has a device number.
func (b *below) takeNode(dir *sysfs.Dir) error {
	c := &b.f.Children
	parent, name := path.Split(dir.Path())
	if path.Base(parent) == "drm" { // drivers/gpu/drm/drm_sysfs.c drm_devnode
		c.Nodes = append(c.Nodes, "dri/"+name)
		return nil
	}
	a := &attributes{dir: dir}
	class := a.link("subsystem")
	b.disks = b.disks || class == "block" || class == "nvme"
	if class == "block" {
		return a.err
	}
	text, _ := a.text("uevent")
	if node := variable(text, "DEVNAME"); node != "" {
		c.Nodes = append(c.Nodes, node)
	}
	return notVanished(a.err)
}
