package dra

import (
	"context"
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// ScarceDisk is how many bytes must be free on the disk of the plugin's state: with less
// the plugin warns, long before it refuses claims ([journal.FullError]). The alert
// KataVFIODiskScarce has the same number.
const ScarceDisk = 256 << 20

// DiskWatch warns while the disk of the plugin's state is about to be full. It is not safe
// for concurrent use.
type DiskWatch struct {
	// Free returns how many bytes are free.
	Free func() (int64, error)
	// Dir is the directory, for the log.
	Dir string
	Log *slog.Logger

	told string // what was logged last, empty when nothing was wrong
}

// Look looks once, and logs what is new.
func (w *DiskWatch) Look(ctx context.Context) {
	free, err := w.Free()
	switch {
	case err != nil && w.isNew("unknown"):
		w.Log.WarnContext(ctx, "the room on the plugin's disk is not known", slog.Any("err", err))
	case err == nil && free < ScarceDisk && w.isNew("scarce"):
		w.Log.WarnContext(ctx, "the plugin's disk is about to be full: free space, or new claims are refused soon",
			slog.String("dir", w.Dir), slog.Int64("freeMiB", free>>20), slog.Int64("wantMiB", ScarceDisk>>20))
	case err == nil && free >= ScarceDisk:
		w.told = ""
	}
}

// isNew reports whether something else was told last, and notes it.
func (w *DiskWatch) isNew(what string) bool {
	last := w.told
	w.told = what
	return last != what
}

// WatchDisk adds a gauge of the bytes that are free on the disk of the plugin's state. Call
// it once.
func (m *Metrics) WatchDisk(free func() (int64, error)) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kata_vfio_state_free_bytes", Help: "Bytes that are free on the disk of the plugin's journal and ledger. Claims are refused when it is full.",
	}, func() float64 {
		bytes, err := free()
		if err != nil {
			return math.NaN()
		}
		return float64(bytes)
	}))
}
