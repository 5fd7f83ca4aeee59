package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/look"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// carrierLimit is how long an interface may take to get its carrier after it was brought up.
const carrierLimit = 30 * time.Second

// configure gives the interface with a MAC an address and brings it up.
func configure(c protocol.Configure) error {
	prefix, err := netip.ParsePrefix(c.Prefix)
	if err != nil {
		return err
	}
	name, err := byMAC(c.MAC)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(socket)
	mask := net.CIDRMask(prefix.Bits(), 32)
	if err := errors.Join(
		setAddress(socket, name, unix.SIOCSIFADDR, prefix.Addr().AsSlice()),
		setAddress(socket, name, unix.SIOCSIFNETMASK, mask),
		setUp(socket, name),
	); err != nil {
		return fmt.Errorf("configure %s: %w", name, err)
	}
	return awaitCarrier(name)
}

func byMAC(mac string) (string, error) {
	all, err := look.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		if i.MAC == mac {
			return i.Name, nil
		}
	}
	return "", fmt.Errorf("no interface with MAC %s among %+v", mac, all)
}

func setAddress(socket int, name string, request uint, address []byte) error {
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := ifreq.SetInet4Addr(address); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, request, ifreq)
}

func setUp(socket int, name string) error {
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, ifreq); err != nil {
		return err
	}
	ifreq.SetUint16(ifreq.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, ifreq)
}

func awaitCarrier(name string) error {
	for end := time.Now().Add(carrierLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if up := look.Carrier(filepath.Join("/sys/class/net", name)); up != nil && *up {
			return nil
		}
	}
	return fmt.Errorf("%s has no carrier after %s", name, carrierLimit)
}
