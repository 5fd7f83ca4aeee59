package vf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const defaultLimit = 10 * time.Second

// openSocket opens a netlink socket in the node's namespace, whose calls end
// with ctx or after limit. The kernel's refusals come with its reasons in words.
func openSocket(ctx context.Context, proc string, limit time.Duration, protocol int) (*nl.NetlinkSocket, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	space, err := netns.GetFromPath(filepath.Join(cmp.Or(proc, "/proc"), "1/ns/net"))
	if err != nil {
		return nil, fmt.Errorf("find the node's network namespace: %w", err)
	}
	defer space.Close() //nolint:errcheck // nothing was written to it
	socket, err := nl.GetNetlinkSocketAt(space, netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("enter the node's network namespace: %w", err)
	}
	limit = cmp.Or(limit, defaultLimit)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	timeout := unix.NsecToTimeval(max(limit, time.Millisecond).Nanoseconds())
	if err := errors.Join(socket.SetExtAck(true), socket.SetSendTimeout(&timeout), socket.SetReceiveTimeout(&timeout)); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}
