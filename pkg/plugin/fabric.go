package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// fabricEvery is the pause between two questions to Fabric Manager. After a restart it waits 60 s for the list of active partitions.
	fabricEvery = 10 * time.Second
	// fabricLimit is how long one may take: it is up to three calls.
	fabricLimit = 30 * time.Second
)

// watchFabric asks Fabric Manager for its partitions until ctx ends.
func (s *service) watchFabric(ctx context.Context) error {
	if s.node.Node == nil || s.node.Node.Fabric == nil {
		return nil
	}
	tick := time.NewTicker(fabricEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.askFabric(ctx)
		}
	}
}

// askFabric asks once. Without an answer the node serves its other devices, so an error is only logged. A change is published.
func (s *service) askFabric(ctx context.Context) {
	limited, cancel := context.WithTimeoutCause(ctx, fabricLimit, fmt.Errorf("no answer within %s", fabricLimit))
	defer cancel()
	changed, err := s.node.AskFabric(limited)
	if isNew(&s.noFabric, err) && ctx.Err() == nil {
		s.log.WarnContext(ctx, "Fabric Manager can't be asked: claims with its GPUs are refused until it can", slog.Any("err", err))
	}
	if changed {
		s.watcher.ReadHost()
	}
}
