package plugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
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

// EverySpread calls look after each pause until ctx ends. It is for a look that asks the API server: the first pause is a random part of
// pause, and the others vary by a fifth, so that the nodes of a cluster that start together don't ask together.
func EverySpread(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	return everySpread(ctx, pause, pause, look)
}

// everySpread is like [EverySpread], but the first pause is a random part of first.
func everySpread(ctx context.Context, first, pause time.Duration, look func(context.Context)) error {
	// The plugins of all nodes start together after an update of the DaemonSet, and must not all ask at once.
	next := time.NewTimer(rand.N(first))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			look(ctx)
			next.Reset(varied(pause))
		}
	}
}

// varied returns a pause that is up to a fifth shorter or longer.
func varied(pause time.Duration) time.Duration { return pause*4/5 + rand.N(pause*2/5) }

// lookEvery is the pause between two looks at whether devices still answer, and which devices the node itself uses. The kernel sends no
// uevent for either.
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
			// Other functions are left alone: reading the configuration space wakes a device that sleeps (pci_config_pm_runtime_get in
			// drivers/pci/pci.c).
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

// statusEvery is the pause between two looks for prepared claims without a status, and at the links of their VFs.
// A look reads only the claims whose status is not known to be correct.
const statusEvery = time.Minute

// syncStatuses updates the status of prepared claims until ctx ends.
func (s *service) syncStatuses(ctx context.Context) error {
	statuses := dra.StatusSync{Reporter: s.reporter, Records: s.node.Parts.Journal, Attributes: s.publisher.Attributes, Lost: s.partitions.Lost}
	return EverySpread(ctx, statusEvery, statuses.Look)
}

// verifyEvery is the pause between two verifications of the whole ledger. Reading a year of it takes seconds of
// CPU time.
const verifyEvery = 24 * time.Hour

// watchLedger verifies the whole ledger now and each day, until ctx ends. The writer reads only its newest file.
func (s *service) watchLedger(ctx context.Context) error {
	return every(ctx, verifyEvery, s.verifyLedger)
}

// verifyLedger logs and counts the faults of the ledger. It skips a missing ledger: the plugin could not write it, and logs that elsewhere.
func (s *service) verifyLedger(ctx context.Context) {
	const fix = "keep the directory unchanged, and run `kata-vfio-audit ledger verify`"
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
		s.log.ErrorContext(ctx, "ledger was changed", slog.String("dir", dir), slog.String("kind", string(p.Kind)),
			slog.String("file", p.File), slog.Int("line", p.Line), slog.String("problem", p.What), slog.String("fix", fix))
	}
	s.metrics.ObserveVerification(len(report.Problems))
}

// verifyTwice verifies a ledger that is being written: an entry that is unfinished the first time is complete the second time. It reads one
// file at a time, because several exceed the plugin's memory limit.
func verifyTwice(ctx context.Context, dir fs.FS) (*ledger.Report, error) {
	o := ledger.Options{Parallel: 1}
	report, err := ledger.VerifyContext(ctx, dir, o)
	if err == nil && len(report.Problems) == 1 && report.Problems[0].Kind == ledger.Unfinished {
		return ledger.VerifyContext(ctx, dir, o)
	}
	return report, err
}

// diskEvery is the pause between two looks at the free space on the plugin's disks.
const diskEvery = time.Minute

// watchDisk warns of a disk that is nearly full, until ctx ends.
func (s *service) watchDisk(ctx context.Context) error {
	watch := DiskWatch{Disks: s.config.Node.Reserves(), Log: s.log}
	return every(ctx, diskEvery, watch.Look)
}

// ScarceDisk is the number of free bytes on a disk of the plugin's state below which the plugin warns, long before it
// refuses claims ([journal.FullError]). The alert KataVFIODiskScarce has the same number.
const ScarceDisk = 256 << 20

// DiskWatch warns while a disk of the plugin's state is nearly full. It is not safe for concurrent use.
type DiskWatch struct {
	Disks metrics.Disks
	Log   *slog.Logger

	logged map[string]string // the problem that was logged last, by directory
}

// Look looks once, and logs new problems.
func (w *DiskWatch) Look(ctx context.Context) {
	for _, disk := range w.Disks.Space() {
		w.lookAt(ctx, disk.Dir, disk.Free, disk.Err)
	}
}

func (w *DiskWatch) lookAt(ctx context.Context, dir string, free int64, err error) {
	switch {
	case err != nil && w.isNew(dir, "unknown"):
		w.Log.WarnContext(ctx, "the free space on the plugin's disk is unknown", slog.String("dir", dir), slog.Any("err", err))
	case err == nil && free < ScarceDisk && w.isNew(dir, "scarce"):
		w.Log.WarnContext(ctx, "the plugin's disk is nearly full: free space, or new claims are refused soon",
			slog.String("dir", dir), slog.Int64("freeMiB", free>>20), slog.Int64("wantMiB", ScarceDisk>>20))
	case err == nil && free >= ScarceDisk:
		delete(w.logged, dir)
	}
}

// isNew reports whether what differs from the problem that was logged last for the directory, and records what.
func (w *DiskWatch) isNew(dir, what string) bool {
	if w.logged == nil {
		w.logged = map[string]string{}
	}
	last := w.logged[dir]
	w.logged[dir] = what
	return last != what
}
