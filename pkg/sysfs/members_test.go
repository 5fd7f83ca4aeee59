package sysfs_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestLinksAndLstatInDescribeMembersOfADirectory(t *testing.T) {
	f := bound(t, nil)
	const dir = "sys/devices/pci0000:3a/0000:3a:00.0/" + nic
	links, err := f.Links(dir)
	if diff := cmp.Diff(map[string]bool{"driver": true, "iommu_group": true}, links); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := f.Links("sys/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	var types []uint32
	for _, info := range f.LstatIn(dir, "vendor", "driver", "none", ".") {
		if info == nil {
			types = append(types, 0)
			continue
		}
		types = append(types, info.Mode&unix.S_IFMT)
	}
	if diff := cmp.Diff([]uint32{unix.S_IFREG, unix.S_IFLNK, 0, unix.S_IFDIR}, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}
