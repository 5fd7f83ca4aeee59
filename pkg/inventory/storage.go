package inventory

import (
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A blockDevice is a disk or one of its partitions.
type blockDevice struct {
	name string
	// disk is the disk that it is a partition of, empty for a disk.
	disk string
	// owners are the functions that lead to it: several for an NVMe namespace
	// with native multipath, none for a virtual device.
	owners []pci.Address
}

// storage is what the node knows of block devices.
type storage struct{ devices []blockDevice }

// readStorage lists the block devices. It does so once a scan.
func (s *scan) readStorage() (*storage, error) {
	if s.storage != nil {
		return s.storage, nil
	}
	all, err := members(s.fs, "sys/class/block")
	if err != nil {
		return nil, err
	}
	places := make(map[string]bool, len(all))
	for _, m := range all {
		places[m.where] = true
	}
	st := &storage{devices: make([]blockDevice, len(all))}
	for i, m := range all {
		b, disk := blockDevice{name: m.name}, m.where
		// A partition's directory is in that of its disk.
		if above := path.Dir(m.where); places[above] {
			b.disk, disk = path.Base(above), above
		}
		if b.owners, err = s.blockOwners(disk); err != nil {
			return nil, err
		}
		st.devices[i] = b
	}
	s.storage = st
	return st, nil
}

// blockOwners returns the functions behind the block device at a place. With
// NVMe's native multipath that is the place of the subsystem, which links to
// its controllers (drivers/nvme/host/multipath.c).
func (s *scan) blockOwners(where string) ([]pci.Address, error) {
	if a, ok := lastAddress(where); ok {
		return []pci.Address{a}, nil
	}
	subsystem := path.Dir(where)
	if path.Base(path.Dir(subsystem)) != "nvme-subsystem" {
		return nil, nil
	}
	controllers, err := members(s.fs, subsystem)
	if err != nil {
		return nil, err
	}
	var owners []pci.Address
	for _, c := range controllers {
		if a, ok := lastAddress(c.where); ok && strings.HasPrefix(c.name, "nvme") {
			owners = append(owners, a)
		}
	}
	return owners, nil
}

// partitions returns the names of a disk and its partitions.
func (st *storage) partitions(disk string) []string {
	names := []string{disk}
	for _, b := range st.devices {
		if b.disk == disk {
			names = append(names, b.name)
		}
	}
	return names
}
