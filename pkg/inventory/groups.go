package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// groupsDir is where the kernel lists its IOMMU groups
// (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
const groupsDir = "sys/kernel/iommu_groups"

// readGroups reads all IOMMU groups; none if the kernel has no IOMMU code.
func (s *scan) readGroups(ctx context.Context) error {
	names, err := s.fs.ReadDir(groupsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	found := make([]*device.Group, len(names))
	err = spread(ctx, len(names), func(i int) error {
		number, err := strconv.Atoi(names[i])
		if err != nil {
			return fmt.Errorf("list %s: %q is not a group number", groupsDir, names[i])
		}
		found[i], err = readGroup(s.fs, number, nil)
		return err
	})
	if err != nil {
		return err
	}
	for _, g := range found {
		if g != nil {
			s.groups[g.Number] = g
		}
	}
	return nil
}

// readGroup reads one group; nil if it does not exist. Only a group without a default domain can be one that VFIO created in its no-IOMMU
// mode. The kernel does not know the type of such a group (drivers/iommu/iommu.c iommu_group_show_type). If before is not nil and has the
// same type and members, readGroup keeps the regions that firmware and IOMMU reserve for the members; otherwise it reads them.
func readGroup(fsys *sysfs.FS, number int, before *device.Group) (*device.Group, error) {
	dir, err := fsys.OpenDir(path.Join(groupsDir, strconv.Itoa(number)))
	if sysfs.Vanished(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	a := &attributes{dir: dir}
	g := &device.Group{Number: number, Type: a.word("type")}
	// A group of no-IOMMU mode has no default domain, so its type is unknown (iommu_group_show_type in drivers/iommu/iommu.c).
	if g.Type == "" || g.Type == "unknown" {
		g.NoIOMMU = a.word("name") == "vfio-noiommu"
	}
	readMembers(g, a)
	if before != nil && g.Type == before.Type && slices.Equal(g.Members, before.Members) && slices.Equal(g.Others, before.Others) {
		g.Reserved = before.Reserved
	} else {
		g.Reserved = readRegions(a)
	}
	if sysfs.Vanished(a.err) {
		return nil, nil
	}
	return g, a.err
}

// readMembers sorts the members of a group into functions and others.
func readMembers(g *device.Group, a *attributes) {
	names := a.list("devices")
	for _, name := range names {
		addr, err := pci.ParseAddress(name)
		if err != nil {
			// A device of another bus, such as a platform device.
			g.Others = append(g.Others, name)
			continue
		}
		g.Members = append(g.Members, addr)
	}
	slices.SortFunc(g.Members, pci.Address.Compare)
}

// readRegions reads the reserved IOVA regions of a group, one to a line:
// "0x00000000fee00000 0x00000000feefffff msi".
func readRegions(a *attributes) []device.Region {
	text, _ := a.text("reserved_regions")
	var regions []device.Region
	for _, line := range lines(text) {
		r, err := parseRegion(line)
		if err != nil {
			a.fail("reserved_regions", err)
			return nil
		}
		regions = append(regions, r)
	}
	return regions
}

func parseRegion(line string) (device.Region, error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return device.Region{}, fmt.Errorf("region %q: want start, end and type", line)
	}
	start, err1 := strconv.ParseUint(f[0], 0, 64)
	end, err2 := strconv.ParseUint(f[1], 0, 64)
	if err := firstError(err1, err2); err != nil {
		return device.Region{}, fmt.Errorf("region %q: %w", line, err)
	}
	return device.Region{Start: start, End: end, Type: unique.Make(f[2]).Value()}, nil
}
