package vf

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink/nl"
)

// TestARequestThatHangs is left behind in time, and the next is sent when it is
// through and no sooner.
func TestARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRtnetlink("/proc")
		var sent atomic.Int32
		through := make(chan struct{})
		r.exchange = func(*nl.NetlinkRequest) ([][]byte, error) {
			sent.Add(1)
			<-through
			return nil, nil
		}
		for range 2 {
			begin := time.Now()
			if _, err := r.do(t.Context(), nil); !errors.Is(err, errNoAnswer) || time.Since(begin) != requestLimit {
				t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), errNoAnswer, requestLimit)
			}
		}
		if sent.Load() != 1 {
			t.Errorf("%d requests were sent; want the second to wait for the first", sent.Load())
		}
		time.AfterFunc(time.Second, func() { close(through) })
		if _, err := r.do(t.Context(), nil); err != nil || sent.Load() != 2 {
			t.Errorf("%v, %d requests were sent; want another once the first was through", err, sent.Load())
		}
	})
}

// TestARequestIsNotWaitedForBeyondItsContext, nor sent after it.
func TestARequestIsNotWaitedForBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRtnetlink("/proc")
		var sent atomic.Int32
		through := make(chan struct{})
		r.exchange = func(*nl.NetlinkRequest) ([][]byte, error) {
			sent.Add(1)
			<-through
			return nil, nil
		}
		defer close(through)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			if _, err := r.do(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || sent.Load() != 1 {
				t.Errorf("%v, %d requests were sent", err, sent.Load())
			}
		}
	})
}
