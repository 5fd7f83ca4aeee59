package dra

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// claimMetrics tell how the kubelet's calls for claims end.
type claimMetrics struct {
	took    *prometheus.HistogramVec
	refused *prometheus.CounterVec
}

func newClaimMetrics(r *prometheus.Registry) claimMetrics {
	m := claimMetrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kata_vfio_claim_seconds", Buckets: phaseBuckets(),
			Help: "Time to prepare and to unprepare one claim, refusals included, by operation (prepare, unprepare) and result (ok, error).",
		}, []string{"operation", "result"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_refusals_total",
			Help: "Claims that were not prepared, by the reason that the claim's Event has. The kubelet asks again for as long as the pod is there, and each time counts.",
		}, []string{"reason"}),
	}
	for _, operation := range []string{"prepare", "unprepare"} {
		m.took.WithLabelValues(operation, "ok")
		m.took.WithLabelValues(operation, "error")
	}
	r.MustRegister(m.took, m.refused)
	return m
}

// prepared counts one call to prepare a claim.
func (m *Metrics) prepared(uid string, took time.Duration, err error) {
	m.claims.took.WithLabelValues("prepare", resultOf(err)).Observe(took.Seconds())
	if err != nil {
		m.claims.refused.WithLabelValues(reasonOf(err)).Inc()
		return
	}
	m.failing.note(uid, nil)
}

// unprepared counts one call to take a claim back.
func (m *Metrics) unprepared(uid string, took time.Duration, err error) {
	m.claims.took.WithLabelValues("unprepare", resultOf(err)).Observe(took.Seconds())
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); quarantined {
		err = nil // its tenant has lost it
	}
	m.failing.note(uid, err)
}

// recordCollector counts the journal's records when asked: the journal is the
// truth, also for what another instance wrote.
type recordCollector struct {
	records func() ([]*journal.Record, []error)
	now     func() time.Time
	count   *prometheus.Desc
	oldest  *prometheus.Desc
}

func newRecordCollector(records func() ([]*journal.Record, []error)) *recordCollector {
	return &recordCollector{
		records: records, now: time.Now,
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
	records, errs := c.records()
	count := map[string]int{"damaged": len(errs)}
	for _, s := range []journal.State{journal.Preparing, journal.Prepared, journal.Releasing, journal.Cleaned, journal.Quarantined} {
		count[string(s)] = 0
	}
	oldest := map[string]time.Duration{string(journal.Preparing): 0, string(journal.Releasing): 0, string(journal.Cleaned): 0}
	for _, r := range records {
		count[string(r.State)]++
		if age, unfinished := oldest[string(r.State)]; unfinished {
			oldest[string(r.State)] = max(age, c.age(r))
		}
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(n), state)
	}
	for state, age := range oldest {
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age.Seconds(), state)
	}
}

// age is how long a record is in its state; 0 where it does not say since when.
func (c *recordCollector) age(r *journal.Record) time.Duration {
	since, err := time.Parse(time.RFC3339, r.Since)
	if err != nil {
		return 0
	}
	return c.now().Sub(since)
}
