package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of ioctl(2): include/uapi/linux/iommufd.h and vfio.h.
const (
	ioasAlloc  = ';'<<8 + 0x81
	ioasMap    = ';'<<8 + 0x85
	deviceBind = ';'<<8 + 100 + 18
	attachPT   = ';'<<8 + 100 + 19

	mapFixed, mapWriteable, mapReadable = 1, 2, 4
)

// object is an open iommufd object.
type object struct{ fd int }

func newObject() (*object, error) {
	fd, err := unix.Open("/dev/iommu", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/iommu: %w", err)
	}
	return &object{fd}, nil
}

func (o *object) close() { _ = unix.Close(o.fd) }

// function is an open function. It belongs to an object.
type function struct {
	object *object
	fd     int
}

// open opens the function's node and binds it to the object, which enables and resets it.
func (o *object) open(address string) (*function, error) {
	nodes, err := os.ReadDir(filepath.Join("/sys/bus/pci/devices", address, "vfio-dev"))
	if err != nil || len(nodes) != 1 {
		return nil, fmt.Errorf("VFIO nodes of %s: %v: %w", address, nodes, err)
	}
	fd, err := unix.Open(filepath.Join("/dev/vfio/devices", nodes[0].Name()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", address, err)
	}
	f := &function{o, fd}
	if err := ioctl(fd, deviceBind, words(16, 0, uint32(o.fd), 0)); err != nil {
		f.close()
		return nil, fmt.Errorf("bind %s to iommufd: %w", address, err)
	}
	return f, nil
}

func (f *function) close() { _ = unix.Close(f.fd) }

// attach lets the function reach what an address space of its object maps.
func (f *function) attach(space uint32) error {
	if err := ioctl(f.fd, attachPT, words(12, 0, space)); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return nil
}

// newSpace returns a new address space.
func (o *object) newSpace() (uint32, error) {
	arg := words(12, 0, 0)
	if err := ioctl(o.fd, ioasAlloc, arg); err != nil {
		return 0, fmt.Errorf("allocate an address space: %w", err)
	}
	return binary.NativeEndian.Uint32(arg[8:]), nil
}

// mapMemory maps memory at 4 GiB, and so pins it.
func (o *object) mapMemory(space uint32, memory []byte) error {
	arg := words(40, mapFixed|mapWriteable|mapReadable, space, 0)
	for _, value := range []uint64{uint64(uintptr(unsafe.Pointer(&memory[0]))), uint64(len(memory)), 4 << 30} {
		arg = binary.NativeEndian.AppendUint64(arg, value)
	}
	if err := ioctl(o.fd, ioasMap, arg); err != nil {
		return fmt.Errorf("map: %w", err)
	}
	return nil
}

// words returns a struct of 32-bit fields.
func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

func ioctl(fd int, request uint, arg []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
		if !errors.Is(errno, unix.EINTR) {
			if errno != 0 {
				return errno
			}
			return nil
		}
	}
}
