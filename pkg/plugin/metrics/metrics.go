// Package metrics declares and counts everything that the plugin serves to Prometheus.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Metrics are the plugin's metrics, on a registry of their own.
type Metrics struct {
	Registry *prometheus.Registry
	phases   *prometheus.HistogramVec
	requests *prometheus.HistogramVec
	claims   claimMetrics
	failing  *failingCollector
	api      apiMetrics
	node     nodeMetrics
	ledger   ledgerMetrics
	audit    auditMetrics
	stages   *prometheus.HistogramVec
	// fragmented counts the free devices that exclusive domains keep for their tenants.
	fragmented *prometheus.GaugeVec
}

// New returns the metrics of a node with the records. stuck returns the number of writes that
// are still in the kernel past their deadline.
func New(records journal.Lister, stuck func() int) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_phase_duration_seconds", Buckets: phaseBuckets(),
			Help: "Time of each part of preparing and unpreparing claims, by phase (wait, unbind, bind, reset, node, journal, cdi, scan, vf, setting, address, ledger, publish) and result (ok, error).",
		}, []string{"phase", "result"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_request_duration_seconds", Buckets: requestBuckets(),
			Help: "Time of each answer to Kata (pod-resources/Get) and to the runtime (nri/<hook>), and of the work that NRI started (nri/HandOver, nri/Renew), by result (ok, error).",
		}, []string{"request", "result"}),
	}
	m.claims, m.failing = newClaimMetrics(m.Registry), newFailingCollector(records)
	m.api, m.node = newAPIMetrics(m.Registry), newNodeMetrics(m.Registry)
	m.ledger, m.audit = newLedgerMetrics(m.Registry), newAuditMetrics(m.Registry)
	m.stages, m.fragmented = newStages(m.Registry), newFragmented(m.Registry)
	for _, result := range []string{"ok", "error"} { // an alert sees the first failure as a rise from 0
		m.phases.WithLabelValues(string(effects.PhaseReset), result)
	}
	m.Registry.MustRegister(
		m.phases, m.requests, newRecordCollector(records), m.failing,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kata_vfio_stuck_writes", Help: "Writes to sysfs that are still in the kernel past their deadline.",
		}, func() float64 { return float64(stuck()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// phaseBuckets range from one write to sysfs to the time that the kubelet waits, in seconds.
func phaseBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60}
}

// requestBuckets range from a look-up to a reset between two sandboxes, in seconds.
func requestBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 2.5, 10}
}

// ObserveRequest counts one answer to a runtime. It is safe for concurrent use.
func (m *Metrics) ObserveRequest(request string, took time.Duration, err error) {
	m.requests.WithLabelValues(request, resultLabel(err)).Observe(took.Seconds())
}

// Observe counts one event of package prepare.
func (m *Metrics) Observe(e effects.Event) { m.phase(string(e.Phase), e.Took, e.Err) }

// ObservePublish counts one write of ResourceSlices.
func (m *Metrics) ObservePublish(took time.Duration, err error) {
	m.phase("publish", took, err)
	if err != nil {
		m.CountUnpublished()
	}
}

func (m *Metrics) phase(phase string, took time.Duration, err error) {
	m.phases.WithLabelValues(phase, resultLabel(err)).Observe(took.Seconds())
}

func resultLabel(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// WatchNRI adds a gauge that is 1 while the runtime is connected to the NRI plugin. Call it once.
func (m *Metrics) WatchNRI(connected func() bool) {
	m.watch("kata_vfio_nri_connected", "1 while the container runtime asks the NRI plugin about sandboxes and containers, 0 while it does not.", connected)
}

// WatchReadiness adds a gauge that is 1 while ready returns an empty string, as for `probe ready`. Call
// it once.
func (m *Metrics) WatchReadiness(ready func() string) {
	m.watch("kata_vfio_ready", "1 while the published devices match the node, otherwise 0. `kata-vfio-plugin probe ready` says why.", func() bool { return ready() == "" })
}

// watch adds a gauge that is 1 while is returns true.
func (m *Metrics) watch(name, help string, is func() bool) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if is() {
			return 1
		}
		return 0
	}))
}

// apiMetrics count requests to the API server.
type apiMetrics struct {
	requests    *prometheus.CounterVec
	unpublished prometheus.Counter
}

func newAPIMetrics(r *prometheus.Registry) apiMetrics {
	m := apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_api_requests_total",
			Help: "Requests to the API server, by method and status code; the code is \"none\" where there was no answer.",
		}, []string{"method", "code"}),
		unpublished: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kata_vfio_publish_failures_total", Help: "ResourceSlices that could not be written; each is tried again.",
		}),
	}
	r.MustRegister(m.requests, m.unpublished)
	return m
}

// CountUnpublished counts one ResourceSlice that could not be written.
func (m *Metrics) CountUnpublished() { m.api.unpublished.Inc() }

// CountRequests returns a transport that passes requests to next and counts them.
func (m *Metrics) CountRequests(next http.RoundTripper) http.RoundTripper {
	return &countingTransport{next: next, requests: m.api.requests}
}

type countingTransport struct {
	next     http.RoundTripper
	requests *prometheus.CounterVec
}

// RoundTrip implements [http.RoundTripper].
func (t *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	code := "none"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.requests.WithLabelValues(r.Method, code).Inc()
	return response, err
}

// WrappedRoundTripper returns the transport beneath, for client-go.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
