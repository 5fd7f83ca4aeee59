package main

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
)

// diskEvery is how often `run` looks how much of its disks is free.
const diskEvery = time.Minute

// disks returns a directory of each disk that has journal or ledger. One that can't be
// looked at refuses claims, which says why.
func (s *service) disks() []string {
	dirs, _ := s.opts.node.Reserves().Disks()
	return dirs
}

// watchDisk warns of a disk that is about to be full, until ctx ends.
func (s *service) watchDisk(ctx context.Context) error {
	watch := dra.DiskWatch{Dirs: s.disks, Free: journal.FreeBytes, Log: s.log}
	return every(ctx, diskEvery, watch.Look)
}
