package dra

import (
	"errors"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/drift"
)

// unreadable is the outcome where bootstrap's record can't be read.
const unreadable = "unreadable"

// WatchBootstrap adds what bootstrap found when it last looked at the node. Read returns its record, read anew for each scrape; where
// there is none (fs.ErrNotExist) nobody looks, and there are no series. Call it once.
func (m *Metrics) WatchBootstrap(read func() (*drift.Record, error)) {
	m.Registry.MustRegister(&bootstrapCollector{
		read: read,
		outcome: prometheus.NewDesc("kata_vfio_bootstrap_outcome",
			"1 for what bootstrap found when it last compared the node with its blueprint: fit, changes needed, reboot needed, can't be made fit, unknown where the look failed, or unreadable where what was found can't be read.",
			[]string{"blueprint", "outcome"}, nil),
		drift: prometheus.NewDesc("kata_vfio_bootstrap_drift_timestamp_seconds",
			"Since when something is not as the node's blueprint says, by part, path and kind (changed, removed, missing, setting, reboot, problem).",
			[]string{"part", "path", "what"}, nil),
		verified: prometheus.NewDesc("kata_vfio_bootstrap_verified_timestamp_seconds",
			"When bootstrap last compared the node with its blueprint.", nil, nil),
	})
}

// bootstrapCollector reads a file that another program writes.
type bootstrapCollector struct {
	read                     func() (*drift.Record, error)
	outcome, drift, verified *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *bootstrapCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.outcome
	out <- c.drift
	out <- c.verified
}

// Collect implements prometheus.Collector.
func (c *bootstrapCollector) Collect(out chan<- prometheus.Metric) {
	r, err := c.read()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		out <- prometheus.MustNewConstMetric(c.outcome, prometheus.GaugeValue, 1, "", unreadable)
		return
	}
	out <- prometheus.MustNewConstMetric(c.outcome, prometheus.GaugeValue, 1, r.Blueprint, r.Outcome)
	out <- prometheus.MustNewConstMetric(c.verified, prometheus.GaugeValue, seconds(r.At))
	since := map[[3]string]float64{}
	for _, d := range r.Differences { // two problems may be of one path
		key := [3]string{d.Part, d.Path, d.What}
		at := seconds(d.Since)
		if earliest, ok := since[key]; !ok || at < earliest {
			since[key] = at
		}
	}
	for key, at := range since {
		out <- prometheus.MustNewConstMetric(c.drift, prometheus.GaugeValue, at, key[:]...)
	}
}

// seconds is a time as Prometheus has it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
