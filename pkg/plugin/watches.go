package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// every calls look now and then after each pause, until ctx ends. A call that takes longer than the pause
// delays the next one.
func every(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	look(ctx)
	return everyAfter(ctx, pause, look)
}

// everyAfter is [every] without the first call.
func everyAfter(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look(ctx)
		}
	}
}

// lookEvery is the pause between two looks at whether devices still answer, and which of them the node uses
// itself. The kernel sends no uevent for either.
const lookEvery = time.Minute

// lookAtDevices looks at our functions until ctx ends.
func (s *service) lookAtDevices(ctx context.Context) error {
	problem := ""
	return everyAfter(ctx, lookEvery, func(ctx context.Context) { problem = s.lookOnce(ctx, problem) })
}

// lookOnce looks once and returns the error's text. It logs an error that differs from the last.
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
		s.log.WarnContext(ctx, "can't check whether devices answer", slog.Any("err", err))
	}
	return err.Error()
}

// drainEvery is the pause between two looks for drains, which another process makes. Without drains a look
// reads one directory that does not exist.
const drainEvery = 2 * time.Second

// drains returns the node's drains by a snapshot. The watch logs marks that can't be read, and Prepare refuses
// claims because of them.
func (s *service) drains(snap *device.Snapshot) []maintain.Draining {
	drains, _ := s.node.DrainsIn(snap)
	return drains
}

// watchMetricsOfDrains adds the drains to the metrics.
func (s *service) watchMetricsOfDrains(ctx context.Context) {
	s.metrics.WatchDrains(func() map[pci.Address]publish.DrainState {
		drains, _ := s.node.Drains(ctx)
		return dra.DrainStates(drains)
	})
}

// watchDrains follows drains until ctx ends.
func (s *service) watchDrains(ctx context.Context) error {
	watch := dra.DrainWatch{Devices: s.node, Reporter: s.reporter, Node: s.config.Node.Name, Log: s.log, Changed: s.wake}
	return every(ctx, drainEvery, watch.Look)
}

// diskEvery is the pause between two looks at the free space on the plugin's disks.
const diskEvery = time.Minute

// disks returns a directory on each disk of the journal and the ledger. It leaves out a disk that can't be read:
// claims are refused with that reason.
func (s *service) disks() []string {
	dirs, _ := s.config.Node.Reserves().Disks()
	return dirs
}

// watchDisk warns of a disk that is nearly full, until ctx ends.
func (s *service) watchDisk(ctx context.Context) error {
	watch := dra.DiskWatch{Dirs: s.disks, Free: journal.FreeBytes, Log: s.log}
	return every(ctx, diskEvery, watch.Look)
}

// provisionEvery is the pause before the plugin retries what it could not provision or bind. It also retries
// when a PF or a VF changes.
const provisionEvery = time.Minute

// provision follows the node's PFs and VFs until ctx ends.
func (s *service) provision(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(provisionEvery)
	defer tick.Stop()
	return s.vfs.Follow(ctx, snapshots, tick.C)
}

// statusEvery is the pause between two looks for prepared claims without a status, and at the links of their VFs.
// A look reads only the claims whose status is not known to be correct.
const statusEvery = time.Minute

// syncStatuses updates the status of prepared claims until ctx ends.
func (s *service) syncStatuses(ctx context.Context) error {
	statuses := dra.StatusSync{Reporter: s.reporter, Records: s.node.Journal.List, Attributes: s.publisher.Attributes}
	return everyAfter(ctx, statusEvery, statuses.Look)
}

// repairEvery is the pause between two looks for orphans, varied by a fifth so that the nodes of a cluster do not
// ask at the same time.
const repairEvery = 5 * time.Minute

// repair looks for orphans now and then after each pause, until ctx ends.
func (s *service) repair(ctx context.Context) error {
	repair := dra.Repair{
		Client: s.plugin.Client, Node: s.config.Node.Name, Records: s.node.Journal.List, Orphans: s.node, Release: s.plugin.Release, Withdrawn: s.sandboxes.table.Withdraw,
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

// isAlive reports whether a process still exists. It returns true if that can't be read.
func isAlive(fs *sysfs.FS, p journal.Process) bool {
	start, err := nri.Kernel{FS: fs}.StartTime(p.PID)
	if err == nil {
		return start == p.StartTime
	}
	there, err := fs.Exists(fmt.Sprintf("proc/%d", p.PID))
	return err != nil || there
}

// verifyEvery is the pause between two verifications of the whole ledger. Reading a year of it takes seconds of
// CPU time.
const verifyEvery = 24 * time.Hour

// watchLedger verifies the whole ledger now and each day, until ctx ends. The writer reads only its newest file.
func (s *service) watchLedger(ctx context.Context) error {
	tick := time.NewTicker(verifyEvery)
	defer tick.Stop()
	for {
		s.verifyLedger(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// verifyLedger logs and counts what is wrong with the ledger. A missing one could not be written, which is logged
// elsewhere.
func (s *service) verifyLedger(ctx context.Context) {
	const fix = "keep the directory as it is, and run `kata-vfio-audit ledger verify`"
	dir := s.config.Node.LedgerDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	report, err := verifyTwice(ctx, os.DirFS(dir))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.log.ErrorContext(ctx, "ledger can't be verified", slog.String("dir", dir), slog.Any("err", err), slog.String("fix", fix))
		s.metrics.ObserveVerification(1)
		return
	}
	for i := range report.Problems {
		p := &report.Problems[i]
		s.log.ErrorContext(ctx, "ledger is not what was written", slog.String("dir", dir), slog.String("kind", string(p.Kind)),
			slog.String("file", p.File), slog.Int("line", p.Line), slog.String("problem", p.What), slog.String("fix", fix))
	}
	s.metrics.ObserveVerification(len(report.Problems))
}

// verifyTwice verifies a ledger that is being written: what is unfinished the first time is complete the second
// time. It reads one file at a time, because several exceed the plugin's memory limit.
func verifyTwice(ctx context.Context, dir fs.FS) (*ledger.Report, error) {
	o := ledger.Options{Parallel: 1}
	report, err := ledger.VerifyContext(ctx, dir, o)
	if err == nil && len(report.Problems) == 1 && report.Problems[0].Kind == ledger.Unfinished {
		return ledger.VerifyContext(ctx, dir, o)
	}
	return report, err
}
