package vfio

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Exclusion keeps all other processes from using functions through VFIO, by holding their IOMMU groups open.
//
// The kernel lets only one process open a group (vfio_group_fops_open in drivers/vfio/group.c). The group counts as
// open until the last device that was opened through it is closed, wherever the descriptor of that device is: in a
// thread's own table, in flight in a socket, registered with io_uring, or still being closed by a process that ends.
// The group also counts as open while one of its functions is bound to an iommufd, and no function can be bound to one
// while the group is open (vfio_device_block_group). So an Exclusion proves that nobody uses the functions, which no
// look at processes can prove.
type Exclusion struct {
	fs  *sysfs.FS
	set []pci.Address
	c   container
}

// Exclude opens the groups of those functions that are on VFIO drivers. It returns [ErrBusy] if another process has one
// of the groups open. End the Exclusion before the functions change drivers. On a kernel without group nodes
// (CONFIG_VFIO_GROUP), an Exclusion excludes nobody.
func Exclude(ctx context.Context, fs *sysfs.FS, set []pci.Address) (*Exclusion, error) {
	x := &Exclusion{fs: fs, set: set, c: container{dev: filepath.Join(fs.Path(), "dev/vfio"), groups: map[int]int{}}}
	for _, a := range set {
		if err := x.add(ctx, a); err != nil {
			x.End()
			return nil, fmt.Errorf("keep other processes from %s: %w", a, err)
		}
	}
	return x, nil
}

// add opens the group of a function.
func (x *Exclusion) add(ctx context.Context, a pci.Address) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n, ok, err := x.group(a)
	if _, open := x.c.groups[n]; open || !ok || err != nil {
		return err
	}
	// A group has only one of the two nodes. The node can be open only once: a second open fails with EBUSY
	// (drivers/vfio/group.c).
	for _, node := range []string{GroupNode(n), NoIOMMUNode(n)} {
		fd, err := openInTime(ctx, filepath.Join(x.fs.Path(), node))
		if err == nil {
			x.c.groups[n] = fd
			return nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENXIO) {
			return err
		}
	}
	return nil
}

// group returns the group of a function on a VFIO driver, and false for any other function.
func (x *Exclusion) group(a pci.Address) (number int, ok bool, err error) {
	dir, err := x.fs.OpenFunction(a)
	if err != nil {
		return 0, false, err
	}
	defer dir.Close()
	driver, err := dir.Driver(a)
	if err != nil {
		return 0, false, err
	}
	if !device.IsVFIO(driver) {
		if serves, err := dir.HasVFIODevice(); err != nil || !serves {
			return 0, false, err
		}
	}
	return dir.GroupNumber(a)
}

// openLimit is how long the kernel may take to open a group.
const openLimit = 2 * time.Second

// openInTime opens a group's node. While another user opens or closes a device of the group, the kernel makes every
// other open wait, for as long as a reset may take. openInTime returns [ErrBusy] in that case too. If the caller's
// context ends first, nothing shows that another user exists, and openInTime returns the cause of that end.
func openInTime(caller context.Context, node string) (int, error) {
	type result struct {
		fd  int
		err error
	}
	opened := make(chan result)
	ctx, cancel := context.WithTimeout(caller, openLimit)
	defer cancel()
	go func() {
		fd, err := openNode(node)
		select {
		case opened <- result{fd, err}:
		case <-ctx.Done():
			if err == nil {
				_ = unix.Close(fd) // it came too late
			}
		}
	}()
	select {
	case r := <-opened:
		return r.fd, r.err
	case <-ctx.Done():
		if caller.Err() != nil {
			return 0, fmt.Errorf("open %s: %w", node, context.Cause(caller))
		}
		return 0, fmt.Errorf("%w: open %s waits for another user: %w", ErrBusy, node, unix.EBUSY)
	}
}

// HotReset resets the excluded functions by a secondary bus reset of the bridge above them. They must be all functions
// behind that bridge, each bound to a VFIO driver and held by no process. The reset takes a second, or up to a minute
// for a slow device; control.ResetTogether lets its caller go earlier if its context ends. If the reset would touch
// functions that are not excluded, HotReset resets nothing and returns a *[ForeignError].
//
// The kernel takes the open groups as the proof of ownership (VFIO_DEVICE_PCI_HOT_RESET,
// drivers/vfio/pci/vfio_pci_core.c). This needs the group interface of VFIO, not iommufd.
func (x *Exclusion) HotReset() error {
	groups, err := listGroups(x.fs, x.set)
	if err != nil {
		return fmt.Errorf("hot reset of %s: %w", list(x.set), err)
	}
	defer x.c.close()
	if err := x.c.reset(x.set, groups); err != nil {
		return fmt.Errorf("hot reset of %s: %w", list(x.set), err)
	}
	return nil
}

// End lets other processes open the functions again.
func (x *Exclusion) End() {
	for n, fd := range x.c.groups {
		_ = unix.Close(fd) // nothing was written to it
		delete(x.c.groups, n)
	}
}

// ErrCannotAsk says that the kernel can't be asked who uses a function: the function is on no VFIO driver, or the
// kernel has no group nodes.
var ErrCannotAsk = errors.New("the kernel can't be asked whether a process has it open")

// Opened returns the node of a function on a VFIO driver if a process has it open, and empty if nobody has. It asks the
// kernel, which also knows users that [Holders] can't see.
//
// To ask, Opened opens the group for a moment. Any other open fails with EBUSY in that moment, so ask only about a
// function that no process is about to open.
func Opened(ctx context.Context, fs *sysfs.FS, f *device.Function) (node string, err error) {
	x, err := Exclude(ctx, fs, []pci.Address{f.Address})
	switch {
	case errors.Is(err, ErrBusy) && f.Group != nil:
		return GroupNode(*f.Group), nil
	case errors.Is(err, sysfs.ErrNoFunction):
		return "", ErrCannotAsk
	case err != nil:
		return "", err
	}
	defer x.End()
	// Functions without a group on VFIO, such as one on a host driver, have nothing that could be opened.
	if len(x.c.groups) == 0 {
		return "", ErrCannotAsk
	}
	return "", nil
}

// Opened is [Opened] on the node of p.
func (p *Processes) Opened(ctx context.Context, f *device.Function) (node string, err error) {
	return Opened(ctx, p.fs, f)
}
