package main

import (
	"context"
	"time"
)

// every looks at once and then each time the pause is over, until ctx ends. A look that
// takes longer than the pause delays the next one.
func every(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
