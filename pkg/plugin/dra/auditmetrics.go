package dra

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// auditMetrics tell of the plugin's checks.
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

// ObserveAudit counts the findings of one look at the node, in place of those of
// the look before.
func (m *Metrics) ObserveAudit(findings []finding.Finding) {
	m.audit.checks.Reset()
	for i := range findings {
		f := &findings[i]
		m.audit.checks.WithLabelValues(f.ID, string(f.Severity), string(f.State)).Inc()
	}
	m.audit.last.SetToCurrentTime()
}
