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
	ledger   ledgerMetrics
	audit    auditMetrics
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
	m.ledger, m.audit = newLedgerMetrics(m.Registry), newAuditMetrics(m.Registry)
	m.Registry.MustRegister(
		m.phases, m.requests, m.devices, &recordCollector{records: records, desc: prometheus.NewDesc(
			"kata_vfio_records", "Records of the journal by state (preparing, prepared, releasing, cleaned, quarantined, damaged).", []string{"state"}, nil,
		)},
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

// recordCollector counts the journal's records when asked: the journal is the
// truth, also for what another instance wrote.
type recordCollector struct {
	records func() ([]*journal.Record, []error)
	desc    *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *recordCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *recordCollector) Collect(ch chan<- prometheus.Metric) {
	records, errs := c.records()
	count := map[string]int{"damaged": len(errs)}
	for _, s := range []journal.State{journal.Preparing, journal.Prepared, journal.Releasing, journal.Cleaned, journal.Quarantined} {
		count[string(s)] = 0
	}
	for _, r := range records {
		count[string(r.State)]++
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}
