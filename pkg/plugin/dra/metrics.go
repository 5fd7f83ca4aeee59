package dra

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Metrics are the plugin's metrics, on a registry of their own.
type Metrics struct {
	Registry *prometheus.Registry
	phases   *prometheus.HistogramVec
	requests *prometheus.HistogramVec
	devices  *prometheus.GaugeVec
	claims   claimMetrics
	failing  *failingCollector
	api      apiMetrics
	ledger   ledgerMetrics
	audit    auditMetrics
	orphans  orphanMetrics
	lacking  *prometheus.GaugeVec
}

// phaseBuckets reach from a write to sysfs to what the kubelet waits for, in seconds.
func phaseBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60}
}

// NewMetrics returns the metrics. Records gives the journal's records, for the
// number of claims by state; stuck the number of writes still in the kernel
// past their deadline.
func NewMetrics(records func() ([]*journal.Record, []error), stuck func() int) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_phase_seconds", Buckets: phaseBuckets(),
			Help: "Time of each part of preparing and unpreparing claims, by phase (wait, unbind, bind, reset, node, journal, cdi, scan, vf, address, ledger, publish) and result (ok, error).",
		}, []string{"phase", "result"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_request_seconds", Buckets: requestBuckets(),
			Help: "Time of each answer to Kata (pod-resources/Get) and to the runtime (nri/<hook>), and of the work that NRI started (nri/HandOver, nri/Renew), by result (ok, error).",
		}, []string{"request", "result"}),
		devices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_devices",
			Help: "Published devices by type (gpu, pf, vf, nvme, other) and health (healthy, unhealthy).",
		}, []string{"type", "health"}),
	}
	m.claims, m.api, m.failing = newClaimMetrics(m.Registry), newAPIMetrics(m.Registry), newFailingCollector(records)
	m.ledger, m.audit, m.orphans = newLedgerMetrics(m.Registry), newAuditMetrics(m.Registry), newOrphanMetrics(m.Registry)
	m.lacking = newLackingVFs(m.Registry)
	// An alert on failures must see the first one as a rise from none.
	for _, result := range []string{"ok", "error"} {
		m.phases.WithLabelValues(string(prepare.PhaseReset), result)
	}
	m.Registry.MustRegister(
		m.phases, m.requests, m.devices, newRecordCollector(records), m.failing,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kata_vfio_stuck_writes", Help: "Writes to sysfs that are still in the kernel past their deadline.",
		}, func() float64 { return float64(stuck()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// requestBuckets reach from a look-up to a reset between two sandboxes, in seconds.
func requestBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 2.5, 10}
}

// ObserveRequest counts one answer to a runtime; it may be called from several
// goroutines.
func (m *Metrics) ObserveRequest(request string, took time.Duration, err error) {
	m.requests.WithLabelValues(request, resultOf(err)).Observe(took.Seconds())
}

// WatchNRI adds a gauge that is 1 while the runtime asks the NRI plugin. Call it
// once.
func (m *Metrics) WatchNRI(connected func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kata_vfio_nri_connected", Help: "1 while the container runtime asks the NRI plugin about sandboxes and containers, 0 while it does not.",
	}, func() float64 {
		if connected() {
			return 1
		}
		return 0
	}))
}

// Observe counts one event of package prepare.
func (m *Metrics) Observe(e prepare.Event) { m.phase(string(e.Phase), e.Took, e.Err) }

// phase counts one piece of work.
func (m *Metrics) phase(phase string, took time.Duration, err error) {
	m.phases.WithLabelValues(phase, resultOf(err)).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
