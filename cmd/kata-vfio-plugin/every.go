package main

import (
	"context"
	"time"
)

// every looks at once and then each time the pause is over, until ctx ends. A look that
// takes longer than the pause delays the next one.
func every(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	look(ctx)
	return everyAfter(ctx, pause, look)
}

// everyAfter is [every] whose first look comes after the first pause.
func everyAfter(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look(ctx)
		}
	}
}
