package dra

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// ledgerMetrics tell of the node's ledger. A failure there keeps devices from
// tenants.
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
			Name: "kata_vfio_ledger_failures_total", Help: "Writes to the ledger that failed: claims are refused meanwhile.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kata_vfio_ledger_written_bytes_total", Help: "Bytes written to the ledger by this plugin, checkpoints included.",
		}),
		size: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kata_vfio_ledger_size", Help: "Events in the ledger behind the last write of this plugin: it never shrinks.",
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

// ObserveVerification tells what a verification of the whole ledger found wrong.
func (m *Metrics) ObserveVerification(problems int) {
	m.ledger.problems.Set(float64(problems))
	m.ledger.verified.SetToCurrentTime()
}
