package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Address is an IPv4 address of one of the node's interfaces.
type Address struct {
	// Interface is the interface's index in the network namespace.
	Interface int          `json:"interface"`
	Prefix    netip.Prefix `json:"prefix"`
}

// dumps is how often a dump is tried that a change of the addresses interrupts.
const dumps = 5

// Addresses returns the IPv4 addresses of all interfaces, in the network namespace of the node's first process, or in the
// caller's where it has no right to that. The kernel lists them nowhere else with their interfaces: its files have the
// route to an address's subnet only, and there is none for a /32 (fib_add_ifaddr) and for one with the flag
// noprefixroute. It waits for the lock of all interfaces (RTNL) until ctx ends, but no longer than [Limit].
func (r *Rtnetlink) Addresses(ctx context.Context) ([]Address, error) {
	var all []Address
	var err error
	for range dumps {
		var messages [][]byte
		messages, err = r.requests.do(ctx, Limit, r.dumpAddresses)
		if errors.Is(err, nl.ErrDumpInterrupted) {
			continue
		}
		if err == nil {
			all, err = parseAddresses(messages)
		}
		break
	}
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the node's interfaces: %w", err)
	}
	return all, nil
}

func (r *Rtnetlink) dumpAddresses() ([][]byte, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfAddrmsg(unix.AF_INET))
	there, err := r.inNamespace()
	if err != nil {
		return nil, err
	}
	if !there {
		socket, err := openSocket(r.proc, unix.NETLINK_ROUTE)
		if err != nil {
			return nil, err
		}
		defer socket.Close()
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	}
	return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
}

// inNamespace reports whether the caller is in the node's network namespace, or may not see which it is.
func (r *Rtnetlink) inNamespace() (bool, error) {
	var node, own unix.Stat_t
	err := unix.Stat(filepath.Join(r.proc, "1/ns/net"), &node)
	if errors.Is(err, fs.ErrPermission) {
		return true, nil
	}
	if err == nil {
		err = unix.Stat("/proc/thread-self/ns/net", &own)
	}
	if err != nil {
		return false, fmt.Errorf("find the node's network namespace: %w", err)
	}
	return node.Dev == own.Dev && node.Ino == own.Ino, nil
}

func parseAddresses(messages [][]byte) ([]Address, error) {
	var all []Address
	for _, m := range messages {
		if len(m) < unix.SizeofIfAddrmsg {
			return nil, errors.New("short message about an address")
		}
		attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, fmt.Errorf("parse the message about an address: %w", err)
		}
		// IFA_LOCAL is the interface's own. IFA_ADDRESS is the peer's on a point-to-point interface.
		a := Address{Interface: int(binary.NativeEndian.Uint32(m[4:]))}
		for _, attr := range attrs {
			if own, ok := netip.AddrFromSlice(attr.Value); ok && attr.Attr.Type == unix.IFA_LOCAL && own.Is4() {
				a.Prefix = netip.PrefixFrom(own, int(m[1]))
			}
		}
		if !a.Prefix.IsValid() {
			return nil, fmt.Errorf("the message about an address of interface %d has no valid one", a.Interface)
		}
		all = append(all, a)
	}
	return all, nil
}
