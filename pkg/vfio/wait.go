package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Wait returns nil when one of the processes has ended, at once if one has
// already, or ctx's cause when that comes first. It sleeps in the kernel
// (pidfd_open(2), poll(2)) until then. A process that only closes the node is
// not noticed.
//
// The holders' PIDs must be those of the caller's own PID namespace.
func Wait(ctx context.Context, fs *sysfs.FS, holders []Holder) error {
	processes, ended, err := open(fs, holders)
	defer closeAll(processes)
	if ended || err != nil {
		return err
	}
	if err := wait(ctx, processes); err != nil {
		return fmt.Errorf("wait for the holders to end: %w", err)
	}
	return nil
}

// open returns a descriptor for each process, or that one has ended.
func open(fs *sysfs.FS, holders []Holder) (processes []int, ended bool, err error) {
	for _, h := range holders {
		fd, err := unix.PidfdOpen(h.PID, 0)
		if errors.Is(err, unix.ESRCH) {
			return processes, true, nil
		}
		if err != nil {
			return processes, false, fmt.Errorf("open process %d: %w", h.PID, err)
		}
		processes = append(processes, fd)
		// Now that the descriptor pins it, see whether it is still the same.
		now, err := describe(fs, h.PID)
		if seen(err) != nil {
			return processes, false, err
		}
		if err != nil || now.StartTime != h.StartTime {
			return processes, true, nil
		}
	}
	return processes, false, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// wait sleeps until one of the processes ends or ctx does.
func wait(ctx context.Context, processes []int) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(wake) }()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		one := binary.NativeEndian.AppendUint64(nil, 1)
		_, _ = unix.Write(wake, one) // can't fail on an eventfd that is open and empty
	})
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for _, fd := range processes {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	err = poll(fds)
	if !stop() {
		<-woken // it must not write to a descriptor that is another's by then
		return context.Cause(ctx)
	}
	return err
}

// poll sleeps until one of the descriptors is ready.
func poll(fds []unix.PollFd) error {
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
