// Package await waits for what does not announce itself: a server that comes up, a machine that boots.
package await

import (
	"context"
	"fmt"
	"time"
)

// Pace is how often is tried.
type Pace struct {
	// Limit is for one try: a server that starts may accept a connection long before it answers, if ever.
	Limit time.Duration
	// Pause is between two tries.
	Pause time.Duration
}

// Until tries until it works. It gives up with what ended tells, once that is an error, and with the cause of ctx and the
// last try's error at the end of ctx.
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
