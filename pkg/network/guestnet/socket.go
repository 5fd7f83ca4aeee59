package guestnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// RequestLimit limits one request, with the wait for its turn. The kernel answers at once, unless an operation on some
// interface takes long.
const RequestLimit = 10 * time.Second

// errNoAnswer is the cause of a request's context that ends at the limit.
var errNoAnswer = errors.New("the kernel does not answer: an operation on an interface hangs (`dmesg` names blocked tasks)")

// Socket is a route netlink socket. The kernel carries out a request in the call that sends it, under the lock of all
// interfaces (RTNL). If an operation on some interface hangs, neither a signal nor the socket's timeout ends that call.
// So a request waits for its turn and runs aside, and is abandoned when its context or the limit ends. After that, the
// socket takes no other requests. A Socket is not safe for concurrent use.
type Socket struct {
	handle *netlink.Handle
	turn   *Turn
	// abandoned is closed when the abandoned request has ended; nil if there is none. why is the cause, also if a request
	// did not get its turn.
	abandoned chan struct{}
	why       error
}

// NewSocket returns the socket of a handle, which it owns from then on. The handle's own timeout is for lost answers. The
// sockets with the same turn make one request at a time.
func NewSocket(handle *netlink.Handle, turn *Turn) (*Socket, error) {
	if err := handle.SetSocketTimeout(RequestLimit); err != nil {
		handle.Close()
		return nil, fmt.Errorf("bound netlink socket: %w", err)
	}
	return &Socket{handle: handle, turn: turn}, nil
}

// Ask makes one request and returns its answer, or the cause of the end of ctx. What the request uses must stay usable
// until it ends.
func Ask[T any](ctx context.Context, s *Socket, request func(*netlink.Handle) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, RequestLimit, errNoAnswer)
	defer cancel()
	var none T
	if err := s.begin(ctx); err != nil {
		return none, err
	}
	done, ended := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer s.turn.leave()
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

// begin waits for the turn of a request.
func (s *Socket) begin(ctx context.Context) error {
	switch {
	case s.why != nil:
		return s.why
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	s.why = s.turn.take(ctx)
	return s.why
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
