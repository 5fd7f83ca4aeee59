package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// repairEvery is how often orphans are looked for, give or take a fifth: the nodes of a
// cluster are not to ask together.
const repairEvery = 5 * time.Minute

// repair looks for orphans at once and then on its schedule, until ctx ends.
func (s *service) repair(ctx context.Context) error {
	repair := dra.Repair{
		Client: s.plugin.Client, Node: s.run.nodeName, Records: s.node.Journal.List, Orphans: s.node, Release: s.plugin.Release, Withdrawn: s.sandboxes.table.Withdraw,
		Alive: func(p journal.Process) bool { return isAlive(s.node.FS, p) }, Reporter: s.reporter, Metrics: s.metrics, Log: s.log, Now: time.Now,
	}
	for {
		repair.Look(ctx)
		wait := time.NewTimer(repairEvery*4/5 + rand.N(repairEvery*2/5))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
	}
}

// isAlive reports whether a process is there still. One that can't be looked at is.
func isAlive(fs *sysfs.FS, p journal.Process) bool {
	start, err := nri.Kernel{FS: fs}.StartTime(p.PID)
	if err == nil {
		return start == p.StartTime
	}
	there, err := fs.Exists(fmt.Sprintf("proc/%d", p.PID))
	return err != nil || there
}
