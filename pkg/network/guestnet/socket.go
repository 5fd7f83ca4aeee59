package guestnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// requestLimit limits one request. The kernel answers at once, unless an operation on some interface takes long.
const requestLimit = 10 * time.Second

// errNoAnswer is the cause of a request's context that ends at the limit.
var errNoAnswer = errors.New("the kernel does not answer: an operation on an interface hangs (`dmesg` names blocked tasks)")

// Socket is a route netlink socket. The kernel carries out a request in the call that sends it, under the lock of all
// interfaces (RTNL). If an operation on some interface hangs, neither a signal nor the socket's timeout ends that call.
// So a request runs aside, and is abandoned when its context or the limit ends. After that, the socket takes no other
// requests. A Socket is not safe for concurrent use.
type Socket struct {
	handle *netlink.Handle
	// abandoned is closed when the abandoned request has ended; nil if there is none. why is the cause.
	abandoned chan struct{}
	why       error
}

// NewSocket returns the socket of a handle, which it owns from then on. The handle's own timeout is for lost answers.
func NewSocket(handle *netlink.Handle) (*Socket, error) {
	if err := handle.SetSocketTimeout(requestLimit); err != nil {
		handle.Close()
		return nil, fmt.Errorf("bound netlink socket: %w", err)
	}
	return &Socket{handle: handle}, nil
}

// Ask makes one request and returns its answer, or the cause of the end of ctx. What the request uses must stay usable
// until it ends.
func Ask[T any](ctx context.Context, s *Socket, request func(*netlink.Handle) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestLimit, errNoAnswer)
	defer cancel()
	var none T
	switch {
	case s.abandoned != nil:
		return none, s.why
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	}
	done, ended := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(ended)
		value, err := request(s.handle)
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		s.abandoned, s.why = ended, context.Cause(ctx)
		return none, s.why
	}
}

// Do is [Ask] for a request without an answer.
func (s *Socket) Do(ctx context.Context, request func(*netlink.Handle) error) error {
	_, err := Ask(ctx, s, func(handle *netlink.Handle) (struct{}, error) { return struct{}{}, request(handle) })
	return err
}

// Close closes the socket and then calls after. If a request was abandoned, that happens when the request has ended: it
// would otherwise go on with descriptors that belong to other files by then.
func (s *Socket) Close(after func()) {
	end := func() {
		s.handle.Close()
		after()
	}
	if s.abandoned == nil {
		end()
		return
	}
	go func() {
		<-s.abandoned
		end()
	}()
}
