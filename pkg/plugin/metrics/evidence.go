package metrics

import (
	"errors"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// ledgerMetrics count writes to the node's ledger. While they fail, claims are refused.
type ledgerMetrics struct {
	events   *prometheus.CounterVec
	failures prometheus.Counter
	bytes    prometheus.Counter
	size     prometheus.Gauge
	problems prometheus.Gauge
	verified prometheus.Gauge
}

func newLedgerMetrics(r *prometheus.Registry) ledgerMetrics {
	m := ledgerMetrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_ledger_events_total", Help: "Events written to the node's ledger by this plugin, by type.",
		}, []string{"type"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kata_vfio_ledger_failures_total", Help: "Failed writes to the ledger. Claims are refused while writes fail.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kata_vfio_ledger_written_bytes_total", Help: "Bytes written to the ledger by this plugin, checkpoints included.",
		}),
		size: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kata_vfio_ledger_size", Help: "Events in the ledger after the last write of this plugin. The number never decreases.",
		}),
		problems: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kata_vfio_ledger_problems", Help: "What the latest verification of the whole ledger found wrong: `kata-vfio-audit ledger verify`.",
		}),
		verified: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kata_vfio_ledger_verified_timestamp_seconds", Help: "When the plugin verified the whole ledger last: at its start, and each day.",
		}),
	}
	for _, t := range ledger.Types() {
		m.events.WithLabelValues(string(t))
	}
	r.MustRegister(m.events, m.failures, m.bytes, m.size, m.problems, m.verified)
	return m
}

// ObserveLedger counts one write to the ledger.
func (m *Metrics) ObserveLedger(w writer.Write) {
	if w.Err != nil {
		m.ledger.failures.Inc()
		return
	}
	for _, t := range w.Types {
		m.ledger.events.WithLabelValues(string(t)).Inc()
	}
	m.ledger.bytes.Add(float64(w.Bytes))
	m.ledger.size.Set(float64(w.Size))
}

// ObserveVerification sets how many problems a verification of the whole ledger found.
func (m *Metrics) ObserveVerification(problems int) {
	m.ledger.problems.Set(float64(problems))
	m.ledger.verified.SetToCurrentTime()
}

// auditMetrics count the findings of the plugin's checks.
type auditMetrics struct {
	checks *prometheus.GaugeVec
	last   prometheus.Gauge
}

func newAuditMetrics(registry *prometheus.Registry) auditMetrics {
	m := auditMetrics{
		checks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_audit_check",
			Help: "Findings of the audit's checks that the plugin runs, by id, severity and state (pass, fail, error, unknown, manual, waived, notapplicable): `kata-vfio-audit explain <id>`.",
		}, []string{"id", "severity", "state"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kata_vfio_audit_last_timestamp_seconds", Help: "When the plugin ran the audit's checks last.",
		}),
	}
	registry.MustRegister(m.checks, m.last)
	return m
}

// ObserveAudit counts the findings of one run of the checks, and drops those of the run before.
func (m *Metrics) ObserveAudit(findings []finding.Finding) {
	m.audit.checks.Reset()
	for i := range findings {
		f := &findings[i]
		m.audit.checks.WithLabelValues(f.ID, string(f.Severity), string(f.State)).Inc()
	}
	m.audit.last.SetToCurrentTime()
}

// unreadable is the outcome if bootstrap's record can't be read.
const unreadable = "unreadable"

// BootstrapRecord is where bootstrap leaves the result of its last verify.
type BootstrapRecord interface {
	// Read returns an error that wraps fs.ErrNotExist if there is no record.
	Read() (*state.Record, error)
}

// WatchBootstrap adds the result of bootstrap's last verify, which is read for each scrape. Without a record there are no series.
// Call it once.
func (m *Metrics) WatchBootstrap(record BootstrapRecord) {
	m.Registry.MustRegister(&bootstrapCollector{
		record: record,
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

type bootstrapCollector struct {
	record                   BootstrapRecord
	outcome, drift, verified *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *bootstrapCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.outcome
	ch <- c.drift
	ch <- c.verified
}

// Collect implements [prometheus.Collector].
func (c *bootstrapCollector) Collect(ch chan<- prometheus.Metric) {
	r, err := c.record.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.outcome, prometheus.GaugeValue, 1, "", unreadable)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.outcome, prometheus.GaugeValue, 1, r.Blueprint, r.Outcome)
	ch <- prometheus.MustNewConstMetric(c.verified, prometheus.GaugeValue, seconds(r.At))
	since := map[[3]string]float64{}
	for _, d := range r.Differences { // two problems can have one path
		key := [3]string{d.Part, d.Path, d.What}
		at := seconds(d.Since)
		if earliest, ok := since[key]; !ok || at < earliest {
			since[key] = at
		}
	}
	for key, at := range since {
		ch <- prometheus.MustNewConstMetric(c.drift, prometheus.GaugeValue, at, key[:]...)
	}
}

// seconds returns a time in Prometheus' unit.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
