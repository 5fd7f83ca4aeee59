package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// diskLimit is how long a disk may take to appear after its driver was loaded.
const diskLimit = 30 * time.Second

// access writes and reads bytes of a BAR or a disk. Both can be mapped; sysfs offers nothing else for a memory BAR.
func access(b protocol.Bytes) (read []byte, err error) {
	page := os.Getpagesize()
	if max(len(b.Write), b.Read) > page {
		return nil, fmt.Errorf("%d bytes are more than a page", max(len(b.Write), b.Read))
	}
	if err := boot.Await(b.File, diskLimit); err != nil {
		return nil, err
	}
	if err := errors.Join(unbind(b.File), enable(b.File)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(b.File, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	memory, err := unix.Mmap(int(f.Fd()), b.Offset, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s at %#x: %w", b.File, b.Offset, err)
	}
	copy(memory, b.Write)
	read = slices.Clone(memory[:b.Read])
	// What was written must be on the disk before the VM ends.
	return read, errors.Join(unix.Munmap(memory), f.Sync())
}

// unbind takes the function of a BAR from its driver: the kernel refuses to map what a driver uses (CONFIG_IO_STRICT_DEVMEM).
func unbind(file string) error {
	if !strings.HasPrefix(filepath.Base(file), "resource") {
		return nil
	}
	function := filepath.Dir(file)
	f, err := os.OpenFile(filepath.Join(function, "driver/unbind"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(filepath.Base(function))
	return errors.Join(err, f.Close())
}

// enable lets the function of a BAR answer for its memory.
func enable(file string) error {
	if !strings.HasPrefix(filepath.Base(file), "resource") {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(file), "enable"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}
