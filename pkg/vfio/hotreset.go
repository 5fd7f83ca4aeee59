package vfio

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// ErrBusy says that a process has an IOMMU group open.
var ErrBusy = errors.New("the IOMMU group is in use")

// ForeignError says that a reset was refused because it would reach functions
// that the caller did not name.
type ForeignError struct {
	Set, Foreign []pci.Address
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("a hot reset of %s would also reset %s", list(e.Set), list(e.Foreign))
}

func list(addrs []pci.Address) string {
	text := make([]string, len(addrs))
	for i, a := range addrs {
		text[i] = a.String()
	}
	return strings.Join(text, ", ")
}

// listGroups returns the groups of the functions, in the functions' order.
func listGroups(fs *sysfs.FS, set []pci.Address) ([]int, error) {
	if len(set) == 0 {
		return nil, errors.New("there is no function to reset")
	}
	groups := make([]int, len(set))
	for i, a := range set {
		driver, err := fs.Driver(a)
		if err != nil {
			return nil, err
		}
		if !device.IsVFIO(driver) {
			return nil, fmt.Errorf("%s is bound to %q, not to a VFIO driver", a, driver)
		}
		n, ok, err := fs.GroupNumber(a)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s is in no IOMMU group", a)
		}
		groups[i] = n
	}
	return groups, nil
}

// container is a VFIO container with its groups. In VFIO's legacy interface, a container stands for one user.
type container struct {
	dev    string // where the nodes are
	fd     int
	groups map[int]int // descriptors by number
	open   []int       // all descriptors but the groups', in the order of opening
}

// reset resets the functions of set. The groups of these functions are open.
func (c *container) reset(set []pci.Address, groups []int) error {
	if err := c.openContainer(); err != nil {
		return err
	}
	// The order is the kernel's: a container takes an IOMMU type only once it has a group, and a group gives out a device
	// only once its container has a type (drivers/vfio/container.c).
	for n, fd := range c.groups {
		if err := c.join(fd); err != nil {
			return fmt.Errorf("IOMMU group %d: %w", n, err)
		}
	}
	if _, err := ioctl(c.fd, setIOMMU, type1v2); err != nil {
		return fmt.Errorf("set the container's IOMMU type: %w", err)
	}
	fd, err := c.openDevice(set[0], groups[0])
	if err != nil {
		return err
	}
	affected, err := hotResetInfo(fd)
	if err != nil {
		return err
	}
	// The kernel refuses foreign functions, too, but does not say which.
	if foreign := foreigners(affected, set); len(foreign) > 0 {
		return &ForeignError{Set: set, Foreign: foreign}
	}
	if _, err := ioctlBytes(fd, hotReset, newReset(slices.Sorted(maps.Values(c.groups)))); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// openContainer opens the control node and checks that VFIO behind it has a type 1 IOMMU.
func (c *container) openContainer() error {
	fd, err := openNode(filepath.Join(c.dev, "vfio"))
	if err != nil {
		return err
	}
	c.fd = fd
	c.open = append(c.open, fd)
	version, err := ioctl(fd, getAPIVersion, 0)
	if err != nil {
		return fmt.Errorf("ask VFIO for its API version: %w", err)
	}
	if version != apiVersion {
		return fmt.Errorf("VFIO has API version %d, want %d", version, apiVersion)
	}
	has, err := ioctl(fd, checkExtension, type1v2)
	if err != nil {
		return fmt.Errorf("ask VFIO for its IOMMU types: %w", err)
	}
	if has == 0 {
		return errors.New("VFIO has no type 1 IOMMU here (is the module vfio_iommu_type1 loaded?)")
	}
	return nil
}

// join puts an open group into the container.
func (c *container) join(group int) error {
	viable, err := isViable(group)
	if err != nil {
		return err
	}
	if !viable {
		return errors.New("it is not viable: a member is bound to a driver that is not VFIO's")
	}
	if err := setContainer(group, c.fd); err != nil {
		return fmt.Errorf("put it into a container: %w", err)
	}
	return nil
}

// openDevice opens a function of a group that is in the container.
func (c *container) openDevice(a pci.Address, group int) (int, error) {
	name := append([]byte(a.String()), 0)
	fd, err := ioctlBytes(c.groups[group], groupGetDevice, name)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", a, err)
	}
	c.open = append(c.open, fd)
	return fd, nil
}

// openNode opens a VFIO node.
func openNode(node string) (int, error) {
	fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return 0, fmt.Errorf("%w: open %s: %w", ErrBusy, node, err)
	}
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", node, err)
	}
	return fd, nil
}

// close closes the devices first, and then the container: a group leaves the container only when none of its devices is
// open. The groups stay open.
func (c *container) close() {
	for i, fd := range slices.Backward(c.open) {
		if i == 0 { // the container itself, of which each group has one as well
			for _, group := range c.groups {
				_, _ = ioctl(group, groupUnsetContainer, 0) // one that was not put into it says so
			}
		}
		_ = unix.Close(fd) // nothing was written to it
	}
	c.open = nil
}

// hotResetInfo asks which functions a hot reset of an open device affects.
func hotResetInfo(fd int) ([]dependent, error) {
	info := newResetInfo(0)
	// The first call has no room for any function, and only shows how many there are. Their number may have grown by
	// the next call.
	_, err := ioctlBytes(fd, getHotResetInfo, info)
	for errors.Is(err, unix.ENOSPC) {
		info = newResetInfo(resetCount(info))
		_, err = ioctlBytes(fd, getHotResetInfo, info)
	}
	if err != nil {
		return nil, fmt.Errorf("ask what a hot reset affects: %w", err)
	}
	return dependents(info)
}

// foreigners returns the affected functions that are not in set.
func foreigners(affected []dependent, set []pci.Address) []pci.Address {
	var foreign []pci.Address
	for _, d := range affected {
		if !slices.ContainsFunc(set, d.is) {
			foreign = append(foreign, d.address())
		}
	}
	return foreign
}
