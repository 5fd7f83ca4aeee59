package guestnet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
)

// TestRequestThatHangs is abandoned in time, the socket takes no other, and closes when the request has ended and no
// sooner.
func TestRequestThatHangs(t *testing.T) {
	errLeft := errors.New("the caller has left")
	for name, tt := range map[string]struct {
		limit time.Duration
		want  error
	}{"at the limit": {time.Hour, errNoAnswer}, "with the caller": {time.Second, errLeft}} {
		synctest.Test(t, func(t *testing.T) {
			s, through := &Socket{handle: &netlink.Handle{}, turn: &Turn{}}, make(chan struct{})
			if n, err := Ask(t.Context(), s, func(*netlink.Handle) (int, error) { return 7, nil }); n != 7 || err != nil {
				t.Errorf("%s: before: %d, %v", name, n, err)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), tt.limit, errLeft)
			defer cancel()
			begin := time.Now()
			if err := s.Do(ctx, func(*netlink.Handle) error { <-through; return nil }); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
			if took := time.Since(begin); took != min(tt.limit, RequestLimit) {
				t.Errorf("%s: it was abandoned after %s", name, took)
			}
			if err := s.Do(t.Context(), func(*netlink.Handle) error { return nil }); !errors.Is(err, tt.want) {
				t.Errorf("%s: the next request: %v, want %v", name, err, tt.want)
			}
			var closed atomic.Bool
			s.Close(func() { closed.Store(true) })
			synctest.Wait()
			if closed.Load() {
				t.Errorf("%s: it closed during the request", name)
			}
			close(through)
			synctest.Wait()
			if !closed.Load() {
				t.Errorf("%s: it did not close after the request", name)
			}
		})
	}
}

// TestRequestsThatHangDoNotPileUp: another socket waits for the turn, does not send its request, and closes at once. When the
// abandoned request has ended, requests are made again.
func TestRequestsThatHangDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		turn, through := &Turn{}, make(chan struct{})
		hang := func(*netlink.Handle) error { sent.Add(1); <-through; return nil }
		for range 3 {
			s, begin := &Socket{handle: &netlink.Handle{}, turn: turn}, time.Now()
			for range 2 {
				if err := s.Do(t.Context(), hang); !errors.Is(err, errNoAnswer) || time.Since(begin) != RequestLimit {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), errNoAnswer, RequestLimit)
				}
			}
			var closed atomic.Bool
			s.Close(func() { closed.Store(true) })
			if closed.Load() != (s.abandoned == nil) {
				t.Errorf("closed %t, and its request was abandoned %t", closed.Load(), s.abandoned != nil)
			}
		}
		if sent.Load() != 1 {
			t.Errorf("%d requests were sent; want the others to wait for the first", sent.Load())
		}
		time.AfterFunc(time.Second, func() { close(through) })
		if err := (&Socket{handle: &netlink.Handle{}, turn: turn}).Do(t.Context(), hang); err != nil || sent.Load() != 2 {
			t.Errorf("%v, %d requests were sent; want another once the first was through", err, sent.Load())
		}
	})
}
