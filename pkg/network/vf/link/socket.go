package link

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// openSocket opens a netlink socket in the network namespace of the node whose
// proc is at that path. The kernel's refusals come with its reasons in words. Who
// uses it is bounded by [requests]; the socket's own timeout is for an answer
// that is lost.
func openSocket(proc string, protocol int) (*nl.NetlinkSocket, error) {
	space, err := netns.GetFromPath(filepath.Join(proc, "1/ns/net"))
	if err != nil {
		return nil, fmt.Errorf("find the node's network namespace: %w", err)
	}
	defer space.Close() //nolint:errcheck // nothing was written to it
	socket, err := nl.GetNetlinkSocketAt(space, netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("enter the node's network namespace: %w", err)
	}
	timeout := unix.NsecToTimeval(Limit.Nanoseconds())
	if err := errors.Join(socket.SetExtAck(true), socket.SetSendTimeout(&timeout), socket.SetReceiveTimeout(&timeout)); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}
