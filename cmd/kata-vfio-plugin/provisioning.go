package main

import (
	"context"
	"time"
)

// provisionEvery is how often `run` tries again what it could not provision or bind,
// besides whenever a PF or a VF changes. A look is one snapshot.
const provisionEvery = time.Minute

// provision follows the node's PFs and VFs until ctx ends.
func (s *service) provision(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(provisionEvery)
	defer tick.Stop()
	return s.vfs.Follow(ctx, snapshots, tick.C)
}
