package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// diskEvery is how often `run` looks how much of its disk is free.
const diskEvery = time.Minute

// freeDisk returns how many bytes are free for journal and ledger.
func (s *service) freeDisk() (int64, error) { return journal.FreeBytes(s.stateDir()) }

func (s *service) stateDir() string { return filepath.Dir(s.opts.node.JournalDir()) }

// watchDisk warns of a disk that is about to be full, until ctx ends.
func (s *service) watchDisk(ctx context.Context) error {
	watch := dra.DiskWatch{Free: s.freeDisk, Dir: s.stateDir(), Log: s.log}
	return every(ctx, diskEvery, watch.Look)
}
