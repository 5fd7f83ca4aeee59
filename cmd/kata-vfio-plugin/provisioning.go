package main

import (
	"context"
	"time"
)

// provisionEvery is how often `run` tries again to make VFs for which another one
// of the same PF has to come free first. A look is one snapshot.
const provisionEvery = time.Minute

// provisionAgain tries until nothing waits for a VF any more, or ctx ends.
func (s *service) provisionAgain(ctx context.Context) error {
	tick := time.NewTicker(provisionEvery)
	defer tick.Stop()
	for s.vfsWait {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.vfsWait = s.vfs.Again(ctx)
		}
	}
	return nil
}
