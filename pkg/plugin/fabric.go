package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
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
			if s.askFabric(ctx) {
				s.reactivate(ctx)
			}
		}
	}
}

// reactivate has lost partitions made again, and reports those that can't be.
func (s *service) reactivate(ctx context.Context) {
	if s.partitions.Look(ctx) {
		s.watcher.ReadHost()
		s.changes.Wake() // the functions were reset, or quarantined
	}
}

// askFabric asks once, and reports whether there was an answer. Without one the node serves its other devices, so an error is only logged. A
// change is published.
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
	// The new snapshot wakes all that follow the node, as a change that the kernel reports does.
	if changed {
		s.watcher.ReadHost()
	}
	return err == nil
}
