package link

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Limit limits a request whose context has no earlier deadline. A PF's firmware can be slow.
const Limit = 10 * time.Second

// errNoAnswer is the cause of a context that ends at a limit.
var errNoAnswer = errors.New("the kernel does not answer: an operation on an interface of the node hangs (`dmesg` names blocked tasks)")

// requests serializes the requests to one of the kernel's netlink families. The kernel carries out a request in the call
// that sends it, under one lock for all interfaces of the node (RTNL), or for all of a device (devlink). An operation
// that hangs blocks all others, and neither a signal nor a socket's timeout ends their calls. So a caller waits no
// longer than its context and a limit allow. An abandoned request blocks the next one until it ends, because its
// settings must not come after later ones.
type requests struct{ turn chan struct{} } // holds a value while a request is under way

func newRequests() requests { return requests{make(chan struct{}, 1)} }

// do carries out one request, and abandons it if ctx or limit ends first.
func (r requests) do(ctx context.Context, limit time.Duration, request func() ([][]byte, error)) ([][]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type answer struct {
		messages [][]byte
		err      error
	}
	done := make(chan answer, 1)
	go func() {
		// The request keeps its turn until the kernel answers, also if nobody waits any more: requests that hang must not pile up.
		defer func() { <-r.turn }()
		messages, err := request()
		done <- answer{messages, err}
	}()
	select {
	case a := <-done:
		return a.messages, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// openSocket opens a netlink socket in the network namespace of the node with that proc. The kernel explains its errors
// (extended ACK). [requests] limits the wait; the socket's own timeout handles a lost answer.
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
