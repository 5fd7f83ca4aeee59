package main

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// drainEvery is how often `run` looks for drains, which another process makes. A
// look without any is one directory that is not there.
const drainEvery = 2 * time.Second

// drains are the node's by a snapshot. Marks that can't be read are told by the
// watch, and Prepare refuses on their account.
func (s *service) drains(snap *device.Snapshot) []prepare.Draining {
	drains, _ := s.node.DrainsIn(snap)
	return drains
}

// watchMetricsOfDrains adds them to the metrics.
func (s *service) watchMetricsOfDrains(ctx context.Context) {
	s.metrics.WatchDrains(func() map[pci.Address]publish.DrainState {
		drains, _ := s.node.Drains(ctx)
		return dra.DrainStates(drains)
	})
}

// watchDrains follows drains until ctx ends.
func (s *service) watchDrains(ctx context.Context) error {
	watch := dra.DrainWatch{Devices: s.node, Reporter: s.reporter, Node: s.run.nodeName, Log: s.log, Changed: s.wake}
	return every(ctx, drainEvery, watch.Look)
}
