package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// verifyEvery is how often the whole ledger is verified: reading a year of it
// takes seconds of a processor.
const verifyEvery = 24 * time.Hour

// watchLedger verifies the whole ledger now and each day, until ctx ends: the
// writer looks at the newest file of it only.
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

// verifyLedger tells what is wrong with the ledger. One that is not there could
// not be written, which is told elsewhere.
func (s *service) verifyLedger(ctx context.Context) {
	const fix = "keep the directory as it is, and run `kata-vfio-audit ledger verify`"
	dir := s.opts.node.LedgerDir()
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

// verifyTwice verifies a ledger that is being written meanwhile: what the first
// look finds unfinished, the second finds complete. It reads one file at a time: many
// at once are more than the plugin's memory limit, and who is killed for that begins
// anew at the next start.
func verifyTwice(ctx context.Context, dir fs.FS) (*ledger.Report, error) {
	o := ledger.Options{Parallel: 1}
	report, err := ledger.VerifyContext(ctx, dir, o)
	if err == nil && len(report.Problems) == 1 && report.Problems[0].Kind == ledger.Unfinished {
		return ledger.VerifyContext(ctx, dir, o)
	}
	return report, err
}
