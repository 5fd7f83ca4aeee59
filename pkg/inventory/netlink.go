package inventory

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// kernelGroup is the multicast group of the kernel's own messages; udev
	// sends what it made of them to group 2 (lib/kobject_uevent.c).
	kernelGroup = 1
	// receiveBuffer holds the events of a few thousand functions that appear at
	// once. Without privilege the kernel gives less, and may drop some: then it
	// says so.
	receiveBuffer = 8 << 20
	// longest is more than a message can have: 2048 bytes of variables
	// (UEVENT_BUFFER_SIZE) and a path of at most a page.
	longest = 8192
)

// netlinkEvents is a socket for the kernel's uevents.
type netlinkEvents struct {
	file *os.File
	conn syscall.RawConn
	buf  [longest]byte
}

// listen opens the socket. Events come from then on.
func listen() (*netlinkEvents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	// The file takes over the descriptor and lets Next wait in the runtime's
	// poller, from where Close can wake it.
	file := os.NewFile(uintptr(fd), "uevents")
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up socket: %w", err), file.Close())
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &netlinkEvents{file: file, conn: conn}, nil
}

// Next implements [Events]. Messages that the kernel did not send, or that it
// does not write so, are passed over: anybody may send to a socket.
func (e *netlinkEvents) Next() (Uevent, error) {
	for {
		n, from, err := e.receive()
		if errors.Is(err, unix.ENOBUFS) {
			return Uevent{}, ErrOverrun
		}
		if err != nil {
			return Uevent{}, err
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		if ev, err := ParseUevent(e.buf[:n]); err == nil {
			return ev, nil
		}
	}
}

// receive waits for one message.
func (e *netlinkEvents) receive() (n int, from unix.Sockaddr, err error) {
	waitErr := e.conn.Read(func(fd uintptr) bool {
		for {
			n, from, err = unix.Recvfrom(int(fd), e.buf[:], 0)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if waitErr != nil {
		return 0, nil, waitErr
	}
	return n, from, err
}

// Close implements [events].
func (e *netlinkEvents) Close() error { return e.file.Close() }
