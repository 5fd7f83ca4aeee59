package guestnet

import (
	"context"
	"log/slog"
	"time"
)

const (
	pollInterval  = 50 * time.Millisecond
	progressEvery = 5 * time.Second
)

// poll calls check until it has no more to wait for or fails, and reports
// false when wait is over before that. check returns what it waits for, which
// is logged at first and every few seconds.
func poll(ctx context.Context, wait time.Duration, log *slog.Logger, check func() (pending string, err error)) (bool, error) {
	start := time.Now()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	next := start
	for {
		pending, err := check()
		if err != nil || pending == "" {
			return err == nil, err
		}
		if now := time.Now(); !now.Before(next) {
			log.InfoContext(ctx, "waiting", slog.String("for", pending), slog.Duration("most", wait), slog.Duration("waited", now.Sub(start).Round(time.Second)))
			next = now.Add(progressEvery)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-deadline.C:
			return false, nil
		case <-ticker.C:
		}
	}
}
