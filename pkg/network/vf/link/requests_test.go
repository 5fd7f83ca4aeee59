package link

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a request that does not come to its end before it is let through.
type hanging struct {
	sent    atomic.Int32
	through chan struct{}
}

func (h *hanging) request() ([][]byte, error) {
	h.sent.Add(1)
	<-h.through
	return nil, nil
}

// TestRequestThatHangs is left behind in time, and the next is sent when it is
// through and no sooner.
func TestRequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRequests(), &hanging{through: make(chan struct{})}
		for range 2 {
			begin := time.Now()
			if _, err := r.do(t.Context(), Limit, h.request); !errors.Is(err, errNoAnswer) || time.Since(begin) != Limit {
				t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), errNoAnswer, Limit)
			}
		}
		if h.sent.Load() != 1 {
			t.Errorf("%d requests were sent; want the second to wait for the first", h.sent.Load())
		}
		time.AfterFunc(time.Second, func() { close(h.through) })
		if _, err := r.do(t.Context(), Limit, h.request); err != nil || h.sent.Load() != 2 {
			t.Errorf("%v, %d requests were sent; want another once the first was through", err, h.sent.Load())
		}
	})
}

// TestRequestIsNotWaitedForBeyondItsContext, nor sent after it.
func TestRequestIsNotWaitedForBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRequests(), &hanging{through: make(chan struct{})}
		defer close(h.through)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			if _, err := r.do(ctx, Limit, h.request); !errors.Is(err, context.DeadlineExceeded) || h.sent.Load() != 1 {
				t.Errorf("%v, %d requests were sent", err, h.sent.Load())
			}
		}
	})
}
