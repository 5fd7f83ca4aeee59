package guestnet

import (
	"context"
	"sync"
)

// Turn has the requests of several sockets wait for each other, because requests that hang must not pile up: each has a thread in
// the kernel. A request keeps its turn until the kernel answers, also if nobody waits for it any more. The zero Turn is ready for use.
type Turn struct {
	once  sync.Once
	taken chan struct{} // holds a value while a request is under way
}

// take waits for the turn until ctx ends, and returns the cause of the end.
func (t *Turn) take(ctx context.Context) error {
	select {
	case t.channel() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Turn) leave() { <-t.channel() }

func (t *Turn) channel() chan struct{} {
	t.once.Do(func() { t.taken = make(chan struct{}, 1) })
	return t.taken
}
