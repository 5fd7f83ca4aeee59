package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
		if errno == 0 {
			return int(n), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return 0, errno
		}
	}
}

// isViable asks whether all members of an open group are VFIO's or nobody's.
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
