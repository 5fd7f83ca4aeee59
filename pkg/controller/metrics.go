package controller

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// Metrics are what /metrics shows. Only the leader's counters grow. It is safe for concurrent use.
type Metrics struct {
	Registry *prometheus.Registry

	leader    prometheus.Gauge
	rules     *prometheus.CounterVec
	answers   *prometheus.CounterVec
	conflicts *prometheus.CounterVec
	failures  *prometheus.CounterVec
	reserve   prometheus.Histogram

	stageTime      *prometheus.HistogramVec
	stageConflicts *prometheus.CounterVec
	stageFailures  *prometheus.CounterVec

	tenantConflicts *prometheus.CounterVec
	tenantFailures  *prometheus.CounterVec

	domainAnswers   *prometheus.CounterVec
	domainConflicts *prometheus.CounterVec
	domainFailures  *prometheus.CounterVec

	classFailures prometheus.Counter
	countFailures prometheus.Counter
}

// NewMetrics returns metrics that count nothing yet.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		leader:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "kata_vfio_twin_leader", Help: "1 for the controller that has the lease."}),
		rules:    counter("kata_vfio_twin_rule_writes_total", "DeviceTaintRules that were written, by the side that has the GPU and what was done.", "side", "write"),
		answers:  counter("kata_vfio_twin_answers_total", "Conditions that were set in claims, by type, status and reason.", "type", "status", "reason"),
		conflicts: counter("kata_vfio_twin_conflicts_total",
			"Writes that the API server refused because the object had changed. They are decided again.", "action"),
		failures: counter("kata_vfio_twin_failures_total", "Writes and lists that failed for another reason. They are tried again.", "action"),
		reserve: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kata_vfio_twin_reserve_seconds", Help: "Time from a claim's allocation to the condition TwinReserved.",
			Buckets: []float64{1, 2, 3, 4, 5, 7.5, 10, 20, 40, 80, 160, 320, 640},
		}),
		stageTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_sanitize_pod_seconds", Help: "Time from the creation of a stage's pod to the end of its container, by profile.",
			Buckets: []float64{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 81920},
		}, []string{"profile"}),
		stageConflicts: counter("kata_vfio_sanitize_conflicts_total",
			"Writes of stages that the API server refused because the object had changed. They are decided again.", "action"),
		stageFailures: counter("kata_vfio_sanitize_failures_total", "Writes and lists of stages that failed for another reason. They are tried again.", "action"),
		tenantConflicts: counter("kata_vfio_tenants_conflicts_total",
			"Writes of tenants' IDs that the API server refused because the ConfigMap had changed. They are decided again.", "action"),
		tenantFailures: counter("kata_vfio_tenants_failures_total", "Reads and writes of tenants' IDs that failed for another reason. They are tried again.", "action"),
		domainAnswers:  counter("kata_vfio_domain_answers_total", "Answers to claims whose pods wait for their exclusive domains, by reason.", "reason"),
		domainConflicts: counter("kata_vfio_domain_conflicts_total",
			"Answers about exclusive domains that the API server refused because the claim had changed. They are decided again.", "action"),
		domainFailures: counter("kata_vfio_domain_failures_total", "Answers about exclusive domains, and lists for them, that failed for another reason. They are tried again.", "action"),
	}
	m.classFailures = prometheus.NewCounter(prometheus.CounterOpts{Name: "kata_vfio_class_view_failures_total", Help: "Writes of the view of DeviceClasses that failed. They are tried again."})
	m.countFailures = prometheus.NewCounter(prometheus.CounterOpts{Name: "kata_vfio_gpu_count_failures_total", Help: "Writes of the count of a node's GPUs that failed. They are tried again."})
	m.Registry.MustRegister(m.stageTime, m.stageConflicts, m.stageFailures, m.tenantConflicts, m.tenantFailures, m.domainAnswers, m.domainConflicts, m.domainFailures, m.leader, m.rules, m.answers, m.conflicts, m.failures, m.reserve,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// watch adds gauges of the rules that are in force, of the claims that wait and of the stages, as a controller's caches have them, and
// of the tenants.
func (m *Metrics) watch(c *Controller) {
	if c.stages != nil {
		m.Registry.MustRegister(newStageCollector(c.stages))
	}
	if c.classes != nil {
		m.Registry.MustRegister(m.classFailures)
	}
	if c.counts != nil {
		m.Registry.MustRegister(m.countFailures)
	}
	if c.tenants != nil {
		m.Registry.MustRegister(newTenantCollector(c.tenants))
	}
	if !c.shares() {
		return
	}
	m.Registry.MustRegister(&cacheCollector{
		controller: c,
		rules:      prometheus.NewDesc("kata_vfio_twin_rules", "DeviceTaintRules of the controller, by the side that has the GPU.", []string{"side"}, nil),
		gpus:       prometheus.NewDesc("kata_vfio_twin_gpus", "GPUs that kata-vfio and another driver publish.", nil, nil),
		twice:      prometheus.NewDesc("kata_vfio_twin_allocated_twice", "GPUs that claims of both drivers have, although one was reserved.", nil, nil),
		waiting:    prometheus.NewDesc("kata_vfio_twin_waiting_seconds", "Age of the oldest allocation of a shared GPU without an answer.", nil, nil),
	})
}

// cacheCollector collects what the informers have.
type cacheCollector struct {
	controller                  *Controller
	rules, gpus, twice, waiting *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *cacheCollector) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.rules, c.gpus, c.twice, c.waiting} {
		into <- d
	}
}

// Collect implements [prometheus.Collector]. It reads one node after the other: a view of the whole cluster is larger than the processor's
// caches, and each node of 1,000 then costs half as much again as one of 250.
func (c *cacheCollector) Collect(into chan<- prometheus.Metric) {
	have, now := c.controller.informers.cached(), c.controller.millis()
	sum := scrape{rules: map[string]int{v1alpha1.TwinOurs: 0, v1alpha1.TwinTheirs: 0}}
	for _, node := range have.nodes() {
		for _, g := range have.on(c.controller, node).GPUs(node) {
			sum.add(g, now)
		}
	}
	for side, n := range sum.rules {
		into <- prometheus.MustNewConstMetric(c.rules, prometheus.GaugeValue, float64(n), side)
	}
	into <- prometheus.MustNewConstMetric(c.gpus, prometheus.GaugeValue, float64(sum.published))
	into <- prometheus.MustNewConstMetric(c.twice, prometheus.GaugeValue, float64(sum.twice))
	into <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(sum.waiting)/1000)
}

// scrape is what one scrape counts.
type scrape struct {
	rules            map[string]int // by the side that has the GPU
	published, twice int
	waiting          twin.Millis // the longest
}

func (s *scrape) add(g *twin.GPU, now twin.Millis) {
	if g.Ours != nil {
		s.published++
	}
	for _, r := range g.Rules {
		s.rules[twin.Side(r.Target)]++
	}
	if _, _, overlaps := g.Overlap(); overlaps {
		s.twice++
	}
	s.waiting = max(s.waiting, longest(g, now))
}

// longest returns for how long claims of our device of a GPU have waited for an answer.
func longest(g *twin.GPU, now twin.Millis) twin.Millis {
	var waited twin.Millis
	for i := range g.OurClaims {
		c := &g.OurClaims[i]
		if !slices.ContainsFunc(c.Conditions, func(a twin.Condition) bool { return a.True && a.At >= c.AllocatedAt }) {
			waited = max(waited, now-c.AllocatedAt)
		}
	}
	return waited
}

// lead says whether this process has the lease.
func (m *Metrics) lead(leads bool) {
	m.leader.Set(map[bool]float64{true: 1}[leads])
}

// count counts an action that was executed at now.
func (m *Metrics) count(a twin.Action, now twin.Millis) {
	switch a := a.(type) {
	case twin.CreateRule:
		m.rules.WithLabelValues(a.Has, "create").Inc()
	case twin.TouchRule:
		m.rules.WithLabelValues(a.Has, "touch").Inc()
	case twin.DeleteRule:
		m.rules.WithLabelValues(twin.Side(a.Rule.Target), "delete").Inc()
	case twin.SetCondition:
		m.answers.WithLabelValues(a.Type, map[bool]string{true: "True", false: "False"}[a.True], string(a.Reason)).Inc()
		if a.Type == v1alpha1.ConditionTwinReserved && a.True {
			m.reserve.Observe(float64(max(now-a.Claim.AllocatedAt, 0)) / 1000)
		}
	}
}

func (m *Metrics) conflict(action string) { m.conflicts.WithLabelValues(action).Inc() }

func (m *Metrics) failed(action string) { m.failures.WithLabelValues(action).Inc() }
