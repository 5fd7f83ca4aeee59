package link

import (
	"context"
	"errors"
	"time"
)

// Limit bounds a request where its context does not: a PF's firmware may take its
// time.
const Limit = 10 * time.Second

// errNoAnswer is the cause where a limit ends the waiting.
var errNoAnswer = errors.New("the kernel does not answer: an operation on an interface of the node hangs (`dmesg` names blocked tasks)")

// requests are those to one of the kernel's netlink families. The kernel carries
// a request out within the call that sends it, under one lock for all interfaces
// of the node (RTNL), or for all of a device (devlink). An operation that hangs
// holds up all others, and neither a signal nor a socket's timeout ends their
// calls. So a request is waited for no longer than its context and a limit
// allow, and one that is left behind keeps the next from being sent until it is
// through: what it sets must not come after what is set later.
type requests struct{ turn chan struct{} } // holds a value while a request is under way

func newRequests() requests { return requests{make(chan struct{}, 1)} }

// do carries out one request, or leaves it behind.
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
