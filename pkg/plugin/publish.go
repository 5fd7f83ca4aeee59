package plugin

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// publishEvery is the pause after which the plugin publishes without a change: it retries what failed, and removes
// withdrawn devices after some time.
const publishEvery = 30 * time.Second

// publish publishes after each new snapshot, each claim and each pause, until ctx ends.
func (s *service) publish(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	var snap *device.Snapshot
	unpublished := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap = <-snapshots:
		case <-s.changed:
		case <-tick.C:
		}
		if snap == nil {
			continue
		}
		s.checkConfig(ctx, snap)
		unpublished = s.publishOnce(ctx, snap, unpublished)
		s.note(ctx, snap)
	}
}

// publishOnce publishes once and returns the error's text. It logs an error that differs from the last.
func (s *service) publishOnce(ctx context.Context, snap *device.Snapshot, last string) string {
	err := s.publisher.Publish(ctx, s.helper, snap)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		s.log.ErrorContext(ctx, "not published", slog.Any("err", err))
	}
	return err.Error()
}

// note writes the run files for the audit. Serving does not depend on them: an error is logged, and the next snapshot
// tries again.
func (s *service) note(ctx context.Context, snap *device.Snapshot) {
	published := s.publisher.Published()
	published.BootID, published.Config = snap.Host.BootID, s.config.Node.Node
	if err := errors.Join(s.notes.Keep(snap), s.notes.Publish(published)); err != nil {
		s.log.WarnContext(ctx, "run files for the audit not written", slog.Any("err", err))
	}
}

// checkConfig logs where the node's config does not fit the node, each time that this changes.
func (s *service) checkConfig(ctx context.Context, snap *device.Snapshot) {
	problems := nodeconfig.Select(s.node.Node, snap).Problems()
	if slices.Equal(problems, s.problems) {
		return
	}
	s.problems = problems
	for _, p := range problems {
		s.log.WarnContext(ctx, "node config does not fit the node", slog.String("rule", p.Rule), slog.String("problem", p.Text), slog.String("fix", p.Fix))
	}
}

// wake makes the publisher publish again. It never blocks.
func (s *service) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // it is due already
	}
}
