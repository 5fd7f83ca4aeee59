// Package await waits for what does not announce itself: a server that comes up, a machine that boots.
package await

import (
	"context"
	"fmt"
	"time"
)

// Pace says how long one try may take, and how long to wait before the next.
type Pace struct {
	// Limit is for one try: a server that starts may accept a connection long before it answers, if ever.
	Limit time.Duration
	// Pause is between two tries.
	Pause time.Duration
}

// Until repeats try until it succeeds. It gives up when ended returns an error, with that error. When ctx ends, it gives up
// with the cause of ctx and the error of the last try.
func Until(ctx context.Context, pace Pace, ended func() error, try func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, pace.Limit)
		err := try(once)
		cancel()
		if err == nil {
			return nil
		}
		if end := ended(); end != nil {
			return fmt.Errorf("%w: %w", end, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pace.Pause):
		}
	}
}
