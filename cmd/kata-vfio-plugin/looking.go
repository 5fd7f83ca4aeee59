package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// lookEvery is how often `run` looks whether the node's devices answer still, and
// which of them the node uses itself. The kernel sends no uevent for either.
const lookEvery = time.Minute

// lookAtDevices looks at the functions that are ours until ctx ends.
func (s *service) lookAtDevices(ctx context.Context) error {
	problem := ""
	return everyAfter(ctx, lookEvery, func(ctx context.Context) { problem = s.lookOnce(ctx, problem) })
}

// lookOnce looks once, and returns what could not be read. It is logged unless it was
// logged last.
func (s *service) lookOnce(ctx context.Context, last string) string {
	snap, err := s.watcher.Snapshot(ctx)
	if err == nil {
		selection := nodeconfig.Select(s.node.Node, snap)
		err = s.watcher.Look(ctx, func(f *device.Function) bool {
			return selection.Choice(f.Address).Ours || device.IsVFIO(f.Driver)
		})
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		s.log.WarnContext(ctx, "not looked whether devices answer", slog.Any("err", err))
	}
	return err.Error()
}
