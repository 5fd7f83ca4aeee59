package main

import (
	"context"
	"fmt"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// tree is where a node is read from.
type tree struct{ root string }

// read scans the node and judges its functions. What lessens the verdicts is
// said on warnings.
func (t *tree) read(ctx context.Context, warnings io.Writer) (*audit.Inventory, error) {
	fs, err := t.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = fs.Close() }()
	if err := t.check(fs, warnings); err != nil {
		return nil, err
	}
	names, err := loadNames(fs)
	if err != nil {
		return nil, err
	}
	s, err := inventory.Scan(ctx, fs, inventory.WithNames(names))
	if err != nil {
		return nil, fmt.Errorf("read the node below %s: %w", t.root, err)
	}
	if err := warnHidden(s, warnings); err != nil {
		return nil, err
	}
	return audit.NewInventory(s), nil
}

func (t *tree) open() (*sysfs.FS, error) {
	fs, err := sysfs.Open(t.root)
	if err != nil {
		return nil, fmt.Errorf("%w; --root wants / or a directory that holds a node's sys, proc, dev and lib", err)
	}
	return fs, nil
}

// loadNames reads the tree's pci.ids, or this machine's where the tree, a copy
// of sys and proc, has none.
func loadNames(fs *sysfs.FS) (*inventory.Names, error) {
	names, err := inventory.LoadNames(fs)
	if names != nil || err != nil {
		return names, err
	}
	here, err := sysfs.Open("/")
	if err != nil {
		return nil, err
	}
	defer func() { _ = here.Close() }()
	return inventory.LoadNames(here)
}

// check refuses what is no Linux node, and warns of one that can't isolate.
func (t *tree) check(fs *sysfs.FS, warnings io.Writer) error {
	ok, err := fs.Exists(sysfs.Devices)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s has no %s: it is no Linux node's root; --root wants / or a directory that holds a node's sys, proc, dev and lib", t.root, sysfs.Devices)
	}
	ok, err = fs.Exists("sys/kernel/iommu_groups")
	if err != nil {
		return err
	}
	if !ok {
		_, err = fmt.Fprintf(warnings, "warning: %s has no sys/kernel/iommu_groups: the kernel was built without IOMMU support, or the copy is incomplete; nothing can be isolated\n", t.root)
	}
	return err
}

// warnHidden says how many functions' capabilities were cut off.
func warnHidden(s *device.Snapshot, warnings io.Writer) error {
	n := 0
	for i := range s.Functions {
		if f := &s.Functions[i]; f.Capabilities.Truncated && !f.ConfigDead {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(warnings, "warning: configuration space of %d functions could not be read in full, so their ACS and ATS are unknown; run as root\n", n)
	return err
}
