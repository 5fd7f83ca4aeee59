package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Requests of ioctl(2) (include/uapi/linux/vfio.h): _IO(VFIO_TYPE, VFIO_BASE +
// n), which on the architectures that we run on is the type in bits 15:8 and the
// number in 7:0.
const (
	typeAndBase = ';'<<8 + 100

	getAPIVersion       = typeAndBase + 0
	checkExtension      = typeAndBase + 1
	setIOMMU            = typeAndBase + 2
	groupGetStatus      = typeAndBase + 3
	groupSetContainer   = typeAndBase + 4
	groupUnsetContainer = typeAndBase + 5
	groupGetDevice      = typeAndBase + 6
	getHotResetInfo     = typeAndBase + 12
	hotReset            = typeAndBase + 13
)

const (
	apiVersion  = 0 // VFIO_API_VERSION
	type1v2     = 3 // VFIO_TYPE1v2_IOMMU
	groupViable = 1 // VFIO_GROUP_FLAGS_VIABLE
)

// Sizes of the structs below. Each struct begins with its own size (argsz), because kernel and user may know different
// versions of it.
const (
	statusSize    = 8
	resetHeader   = 12
	dependentSize = 8
)

// dependent is a function that a hot reset affects, struct
// vfio_pci_dependent_device.
type dependent struct {
	group uint32
	// segment holds the low 16 bits of the domain; the field has no more.
	segment  uint16
	bus      uint8
	dev, fun uint8
}

// is reports whether d is the function at a.
func (d dependent) is(a pci.Address) bool {
	return d.segment == uint16(a.Domain) && d.bus == a.Bus && d.dev == a.Device && d.fun == a.Function
}

// address returns the function's address, its domain cut to 16 bits.
func (d dependent) address() pci.Address {
	return pci.Address{Domain: uint32(d.segment), Bus: d.bus, Device: d.dev, Function: d.fun}
}

// newResetInfo returns an empty struct vfio_pci_hot_reset_info with room for
// count dependents.
func newResetInfo(count int) []byte {
	b := make([]byte, resetHeader+count*dependentSize)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// resetCount returns how many dependents the kernel has for the struct. The kernel reports the number even if they
// don't fit.
func resetCount(info []byte) int { return int(binary.NativeEndian.Uint32(info[8:])) }

// dependents decodes a struct vfio_pci_hot_reset_info that the kernel filled in.
func dependents(info []byte) ([]dependent, error) {
	n := resetCount(info)
	if room := (len(info) - resetHeader) / dependentSize; n > room {
		return nil, fmt.Errorf("hot reset info names %d functions but has room for %d", n, room)
	}
	all := make([]dependent, n)
	for i := range all {
		b := info[resetHeader+i*dependentSize:]
		all[i] = dependent{
			group:   binary.NativeEndian.Uint32(b),
			segment: binary.NativeEndian.Uint16(b[4:]),
			bus:     b[6],
			dev:     b[7] >> 3, // PCI_SLOT
			fun:     b[7] & 7,  // PCI_FUNC
		}
	}
	return all, nil
}

// newReset returns a struct vfio_pci_hot_reset that proves ownership of the
// groups by their open descriptors.
func newReset(groups []int) []byte {
	b := make([]byte, resetHeader, resetHeader+4*len(groups))
	// argsz, flags, count, and then the descriptors (struct vfio_pci_hot_reset in include/uapi/linux/vfio.h).
	binary.NativeEndian.PutUint32(b, uint32(cap(b)))
	binary.NativeEndian.PutUint32(b[8:], uint32(len(groups)))
	for _, fd := range groups {
		b = binary.NativeEndian.AppendUint32(b, uint32(int32(fd)))
	}
	return b
}

// ioctl makes a request whose argument is a number. The request's result may
// be a number or a new descriptor.
func ioctl(fd int, request uint, arg uintptr) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), arg)
		if errno == 0 {
			return int(n), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return 0, errno
		}
	}
}

// ioctlBytes makes a request whose argument is a struct, given as its bytes,
// which the kernel reads and may write to.
func ioctlBytes(fd int, request uint, arg []byte) (int, error) {
	for {
		// The conversion is in the call itself, so that the memory stays in place during it (package unsafe, rule 4).
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
		if errno == 0 {
			return int(n), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return 0, errno
		}
	}
}

// isViable asks whether all members of an open group are bound to VFIO or to no driver.
func isViable(group int) (bool, error) {
	status := make([]byte, statusSize)
	binary.NativeEndian.PutUint32(status, statusSize)
	if _, err := ioctlBytes(group, groupGetStatus, status); err != nil {
		return false, fmt.Errorf("ask for its status: %w", err)
	}
	return binary.NativeEndian.Uint32(status[4:])&groupViable != 0, nil
}

// setContainer puts an open group into a container.
func setContainer(group, container int) error {
	fd := binary.NativeEndian.AppendUint32(nil, uint32(int32(container)))
	_, err := ioctlBytes(group, groupSetContainer, fd)
	return err
}
