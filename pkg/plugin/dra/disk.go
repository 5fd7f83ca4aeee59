package dra

import (
	"context"
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// ScarceDisk is how many bytes must be free on each disk of the plugin's state: with less
// the plugin warns, long before it refuses claims ([journal.FullError]). The alert
// KataVFIODiskScarce has the same number.
const ScarceDisk = 256 << 20

// DiskWatch warns while a disk of the plugin's state is about to be full. It is not safe
// for concurrent use.
type DiskWatch struct {
	// Dirs returns a directory of each disk.
	Dirs func() []string
	// Free returns how many bytes are free on a directory's disk.
	Free func(dir string) (int64, error)
	Log  *slog.Logger

	logged map[string]string // what was logged last of each directory; nothing where nothing was wrong
}

// Look looks once, and logs what is new.
func (w *DiskWatch) Look(ctx context.Context) {
	for _, dir := range w.Dirs() {
		w.lookAt(ctx, dir)
	}
}

func (w *DiskWatch) lookAt(ctx context.Context, dir string) {
	free, err := w.Free(dir)
	switch {
	case err != nil && w.isNew(dir, "unknown"):
		w.Log.WarnContext(ctx, "the room on the plugin's disk is not known", slog.String("dir", dir), slog.Any("err", err))
	case err == nil && free < ScarceDisk && w.isNew(dir, "scarce"):
		w.Log.WarnContext(ctx, "the plugin's disk is about to be full: free space, or new claims are refused soon",
			slog.String("dir", dir), slog.Int64("freeMiB", free>>20), slog.Int64("wantMiB", ScarceDisk>>20))
	case err == nil && free >= ScarceDisk:
		delete(w.logged, dir)
	}
}

// isNew reports whether something else was told last of a directory, and notes it.
func (w *DiskWatch) isNew(dir, what string) bool {
	if w.logged == nil {
		w.logged = map[string]string{}
	}
	last := w.logged[dir]
	w.logged[dir] = what
	return last != what
}

// WatchDisks adds a gauge of the bytes that are free on the disks of the plugin's state, by
// directories, one for each disk. Call it once.
func (m *Metrics) WatchDisks(dirs func() []string, free func(dir string) (int64, error)) {
	m.Registry.MustRegister(&diskCollector{dirs: dirs, free: free, desc: prometheus.NewDesc("kata_vfio_state_free_bytes",
		"Bytes that are free on the disks of the plugin's journal and ledger. Claims are refused when one is full.", []string{"directory"}, nil)})
}

// diskCollector looks at disks for each scrape.
type diskCollector struct {
	dirs func() []string
	free func(dir string) (int64, error)
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *diskCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *diskCollector) Collect(out chan<- prometheus.Metric) {
	for _, dir := range c.dirs() {
		value := math.NaN()
		if bytes, err := c.free(dir); err == nil {
			value = float64(bytes)
		}
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, dir)
	}
}
