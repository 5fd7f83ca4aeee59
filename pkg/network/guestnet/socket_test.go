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
			s, through := &Socket{handle: &netlink.Handle{}}, make(chan struct{})
			if n, err := Ask(t.Context(), s, func(*netlink.Handle) (int, error) { return 7, nil }); n != 7 || err != nil {
				t.Errorf("%s: before: %d, %v", name, n, err)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), tt.limit, errLeft)
			defer cancel()
			begin := time.Now()
			if err := s.Do(ctx, func(*netlink.Handle) error { <-through; return nil }); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
			if took := time.Since(begin); took != min(tt.limit, requestLimit) {
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
