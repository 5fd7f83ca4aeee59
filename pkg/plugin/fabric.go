package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
)

const (
	// fabricEvery is the pause between two requests to Fabric Manager. After a restart Fabric Manager waits 60 s for the list of active
	// partitions.
	fabricEvery = 10 * time.Second
	// fabricLimit is how long one request may take, which makes up to three calls.
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
			if s.askFabric(ctx) {
				s.reactivate(ctx)
			}
		}
	}
}

// reactivate activates lost partitions again, and reports those that it can't activate.
func (s *service) reactivate(ctx context.Context) {
	if s.partitions.Look(ctx) {
		s.watcher.ReadHost()
		s.changes.Wake() // the functions were reset, or quarantined
	}
}

// askFabric asks Fabric Manager once, and reports whether it answered. It only logs an error, because the node serves its other devices
// without Fabric Manager. If the answer changed, it is published.
func (s *service) askFabric(ctx context.Context) (answered bool) {
	limited, cancel := context.WithTimeoutCause(ctx, fabricLimit, fmt.Errorf("no answer within %s", fabricLimit))
	defer cancel()
	changed, err := s.node.AskFabric(limited)
	if err != nil && ctx.Err() == nil && !fabric.SameReason(s.noFabric, err.Error()) {
		s.log.WarnContext(ctx, "Fabric Manager can't be asked: claims with its GPUs are refused until it can", slog.Any("err", err))
	}
	s.noFabric = ""
	if err != nil {
		s.noFabric = err.Error()
	}
	// The new snapshot wakes everything that follows the node, as after a change that the kernel reports.
	if changed {
		s.watcher.ReadHost()
	}
	return err == nil
}
