package metrics

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// claimMetrics count the kubelet's calls for claims.
type claimMetrics struct {
	took    *prometheus.HistogramVec
	refused *prometheus.CounterVec
	starts  *prometheus.CounterVec
}

func newClaimMetrics(r *prometheus.Registry) claimMetrics {
	m := claimMetrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_claim_duration_seconds", Buckets: phaseBuckets(),
			Help: "Time to prepare and to unprepare one claim, refusals included, by operation (prepare, unprepare) and result (ok, error).",
		}, []string{"operation", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_refusals_total",
			Help: "Claims that were not prepared, by the reason of the claim's Event. The kubelet retries while the pod exists, and each attempt counts.",
		}, []string{"reason"}),
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_prepared_claims_total",
			Help: "Claims that were prepared, by what they found: warm (all devices on VFIO after a proven reset), cold (a driver was changed or a device reset). The kubelet's repetitions count.",
		}, []string{"start"}),
	}
	m.starts.WithLabelValues("warm")
	m.starts.WithLabelValues("cold")
	for _, operation := range []string{"prepare", "unprepare"} {
		m.took.WithLabelValues(operation, "ok")
		m.took.WithLabelValues(operation, "error")
	}
	r.MustRegister(m.took, m.refused, m.starts)
	return m
}

// ObservePrepare counts one call to prepare a claim. reason says why the claim was refused, or is empty if it was
// prepared.
func (m *Metrics) ObservePrepare(uid string, took time.Duration, reason string) {
	if reason != "" {
		m.claims.took.WithLabelValues("prepare", "error").Observe(took.Seconds())
		m.claims.refused.WithLabelValues(reason).Inc()
		return
	}
	m.claims.took.WithLabelValues("prepare", "ok").Observe(took.Seconds())
	m.failing.note(uid, nil)
}

// ObserveStart counts one claim that was prepared, by whether it found its devices ready.
func (m *Metrics) ObserveStart(warm bool) {
	m.claims.starts.WithLabelValues(map[bool]string{true: "warm", false: "cold"}[warm]).Inc()
}

// ObserveUnprepare counts one call to unprepare a claim.
func (m *Metrics) ObserveUnprepare(uid string, took time.Duration, err error) {
	m.claims.took.WithLabelValues("unprepare", resultLabel(err)).Observe(took.Seconds())
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); quarantined {
		err = nil // the tenant no longer has it
	}
	m.failing.note(uid, err)
}

// recordCollector counts the journal's records for each scrape, because another instance of the plugin may write some
// too.
type recordCollector struct {
	records journal.Lister
	count   *prometheus.Desc
	oldest  *prometheus.Desc
}

func newRecordCollector(records journal.Lister) *recordCollector {
	return &recordCollector{
		records: records,
		count: prometheus.NewDesc("kata_vfio_records",
			"Records of the journal by state (preparing, prepared, releasing, cleaned, quarantined, damaged).", []string{"state"}, nil),
		oldest: prometheus.NewDesc("kata_vfio_unfinished_record_seconds",
			"How long the record that is longest on its way is in its state (preparing, releasing, cleaned); 0 where none is.", []string{"state"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *recordCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.count
	ch <- c.oldest
}

// Collect implements [prometheus.Collector].
func (c *recordCollector) Collect(ch chan<- prometheus.Metric) {
	records, errs := c.records.List()
	count := map[string]int{"damaged": len(errs)}
	for _, s := range []journal.State{journal.Preparing, journal.Prepared, journal.Releasing, journal.Cleaned, journal.Quarantined} {
		count[string(s)] = 0
	}
	oldest := map[string]time.Duration{string(journal.Preparing): 0, string(journal.Releasing): 0, string(journal.Cleaned): 0}
	for _, r := range records {
		count[string(r.State)]++
		if longest, unfinished := oldest[string(r.State)]; unfinished {
			oldest[string(r.State)] = max(longest, age(r))
		}
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(n), state)
	}
	for state, longest := range oldest {
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, longest.Seconds(), state)
	}
}

// failingCollector measures for how long claims can't be unprepared. The journal does not show
// it: while a process has a device open, its claim stays prepared.
type failingCollector struct {
	records journal.Lister
	desc    *prometheus.Desc

	mu    sync.Mutex           // guards since
	since map[string]time.Time // the first failure of the claims whose latest try failed, by UID
}

func newFailingCollector(records journal.Lister) *failingCollector {
	return &failingCollector{
		records: records, since: map[string]time.Time{},
		desc: prometheus.NewDesc("kata_vfio_unprepare_failing_seconds",
			"How long ago the first of the failures was to take back the claim that fails for longest, by the state in which that leaves it (preparing, prepared, releasing, cleaned); 0 where none fails.",
			[]string{"state"}, nil),
	}
}

// note records the result of a call for a claim. Success ends the failure, and so does a call that prepares the claim
// again.
func (c *failingCollector) note(uid string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.since, uid)
	} else if _, failing := c.since[uid]; !failing {
		c.since[uid] = time.Now()
	}
}

// all returns the first failure of each claim whose latest try failed.
func (c *failingCollector) all() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.since)
}

// Describe implements [prometheus.Collector].
func (c *failingCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector]. A claim without a record, or in quarantine, has ended.
func (c *failingCollector) Collect(ch chan<- prometheus.Metric) {
	records, _ := c.records.List()
	longest := map[journal.State]time.Duration{journal.Preparing: 0, journal.Prepared: 0, journal.Releasing: 0, journal.Cleaned: 0}
	c.mu.Lock()
	left := map[string]time.Time{}
	for _, rec := range records {
		since, failing := c.since[rec.ID()]
		if age, unfinished := longest[rec.State]; failing && unfinished {
			longest[rec.State] = max(age, time.Since(since))
			left[rec.ID()] = since
		}
	}
	c.since = left
	c.mu.Unlock()
	for state, age := range longest {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, age.Seconds(), string(state))
	}
}
