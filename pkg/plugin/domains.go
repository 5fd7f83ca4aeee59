package plugin

import (
	"context"
	"log/slog"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// countDomains counts the free devices that exclusive domains keep for their tenants. If no rule of the node config makes such domains, it
// reads nothing.
func (s *service) countDomains(ctx context.Context, snap *device.Snapshot) {
	if !s.node.Node.HasExclusive() {
		return
	}
	known, err := s.node.Preparer.PlanNode(ctx, snap)
	if err != nil { // publishing logs it at its level, too
		s.log.DebugContext(ctx, "free devices of exclusive domains not counted", slog.Any("err", err))
		return
	}
	s.metrics.ObserveFragmented(known.Fragmented())
}
