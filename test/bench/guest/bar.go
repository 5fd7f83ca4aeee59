package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of VFIO's type 1 IOMMU: include/uapi/linux/vfio.h.
const (
	setIOMMU          = ';'<<8 + 100 + 2
	groupSetContainer = ';'<<8 + 100 + 4
	groupGetDevice    = ';'<<8 + 100 + 6
	getRegionInfo     = ';'<<8 + 100 + 8
	typeMap           = ';'<<8 + 100 + 13
	typeUnmap         = ';'<<8 + 100 + 14

	type1v2 = 3
	bars    = 6
	gib     = 1 << 30
)

// barRounds is how often the BAR is mapped, at an aligned address and at another, in turns.
const barRounds = 3

// compareBAR times maps of a function's largest BAR to VFIO's type 1 IOMMU, as QEMU maps it from 9.2 on, at an address
// aligned to the huge pages of 1 GiB, and as it was mapped before, at one that is aligned to 4 KiB only.
func compareBAR(address string) error {
	container, device, err := openByGroup(address)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(container) }()
	defer func() { _ = unix.Close(device) }()
	size, offset, err := largestBAR(device)
	if err != nil {
		return err
	}
	var aligned, others []time.Duration
	for range barRounds {
		for skew, times := range map[uintptr]*[]time.Duration{0: &aligned, 4096: &others} {
			took, err := mapBAR(container, device, size, offset, skew)
			if err != nil {
				return err
			}
			*times = append(*times, took)
		}
	}
	a, b := median(aligned), median(others)
	fmt.Printf("bar: %d GiB: medians of %d: aligned %v, not aligned %v\n", size/gib, barRounds, a.Round(time.Millisecond), b.Round(time.Millisecond))
	fmt.Printf("bar ratio unaligned/aligned %.2f\n", float64(b)/float64(a))
	return nil
}

// openByGroup opens a function by its legacy group, with a container.
func openByGroup(address string) (container, device int, err error) {
	group, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", address, "iommu_group"))
	if err != nil {
		return 0, 0, err
	}
	node, err := unix.Open(filepath.Join("/dev/vfio", filepath.Base(group)), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("open the group's node: %w", err)
	}
	if container, err = unix.Open("/dev/vfio/vfio", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return 0, 0, fmt.Errorf("open /dev/vfio/vfio: %w", err)
	}
	if err := ioctl(node, groupSetContainer, words(uint32(container))); err != nil {
		return 0, 0, fmt.Errorf("add the group to the container: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(container), setIOMMU, type1v2); errno != 0 {
		return 0, 0, fmt.Errorf("set type 1: %w", errno)
	}
	name := append([]byte(address), 0)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(node), groupGetDevice, uintptr(unsafe.Pointer(&name[0])))
	if errno != 0 {
		return 0, 0, fmt.Errorf("open %s: %w", address, errno)
	}
	return container, int(fd), nil
}

func largestBAR(device int) (size, offset uint64, err error) {
	for index := range uint32(bars) {
		info := append(words(32, 0, index, 0), make([]byte, 16)...)
		if err := ioctl(device, getRegionInfo, info); err != nil {
			return 0, 0, fmt.Errorf("region %d: %w", index, err)
		}
		if s := binary.NativeEndian.Uint64(info[16:]); s > size {
			size, offset = s, binary.NativeEndian.Uint64(info[24:])
		}
	}
	return size, offset, nil
}

// mapBAR maps a BAR to the process, skewed from an alignment of 1 GiB, and then, timed, to the IOMMU.
func mapBAR(container, device int, size, offset uint64, skew uintptr) (time.Duration, error) {
	const anywhere = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	room := uintptr(size) + 2*gib
	base, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_NONE, anywhere)
	if err != nil {
		return 0, fmt.Errorf("reserve addresses: %w", err)
	}
	defer func() { _ = unix.MunmapPtr(base, room) }()
	at := (uintptr(base)+gib-1)&^(gib-1) + skew
	place := unsafe.Add(base, at-uintptr(base))
	if _, err := unix.MmapPtr(device, int64(offset), place, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return 0, fmt.Errorf("map the BAR: %w", err)
	}
	const space = 64 * gib
	arg := words(32, 3)
	for _, v := range []uint64{uint64(at), space, size} {
		arg = binary.NativeEndian.AppendUint64(arg, v)
	}
	begin := time.Now()
	if err := ioctl(container, typeMap, arg); err != nil {
		return 0, fmt.Errorf("map the BAR to the IOMMU: %w", err)
	}
	took := time.Since(begin)
	arg = words(24, 0)
	for _, v := range []uint64{space, size} {
		arg = binary.NativeEndian.AppendUint64(arg, v)
	}
	if err := ioctl(container, typeUnmap, arg); err != nil {
		return 0, fmt.Errorf("unmap the BAR: %w", err)
	}
	return took, nil
}
