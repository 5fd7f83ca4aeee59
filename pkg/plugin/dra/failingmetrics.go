package dra

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// failingCollector tells how long claims can't be taken back. The journal has no word of
// it where nothing has begun: while a process has a device open, its claim stays
// prepared.
type failingCollector struct {
	records func() ([]*journal.Record, []error)
	now     func() time.Time
	desc    *prometheus.Desc

	mu    sync.Mutex           // guards since
	since map[string]time.Time // the first failure of those whose last try has failed, by UID
}

func newFailingCollector(records func() ([]*journal.Record, []error)) *failingCollector {
	return &failingCollector{
		records: records, now: time.Now, since: map[string]time.Time{},
		desc: prometheus.NewDesc("kata_vfio_unprepare_failing_seconds",
			"How long ago the first of the failures was to take back the claim that fails for longest, by the state in which that leaves it (preparing, prepared, releasing, cleaned); 0 where none fails.",
			[]string{"state"}, nil),
	}
}

// note says how a call for a claim has ended: one that succeeds, also in preparing the
// claim again, ends its failing.
func (c *failingCollector) note(uid string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.since, uid)
	} else if _, failing := c.since[uid]; !failing {
		c.since[uid] = c.now()
	}
}

// Describe implements [prometheus.Collector].
func (c *failingCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector]. A claim without a record, or in quarantine,
// has ended by other hands.
func (c *failingCollector) Collect(ch chan<- prometheus.Metric) {
	records, _ := c.records()
	longest := map[journal.State]time.Duration{journal.Preparing: 0, journal.Prepared: 0, journal.Releasing: 0, journal.Cleaned: 0}
	c.mu.Lock()
	left := map[string]time.Time{}
	for _, rec := range records {
		since, failing := c.since[rec.ID()]
		if age, unfinished := longest[rec.State]; failing && unfinished {
			longest[rec.State] = max(age, c.now().Sub(since))
			left[rec.ID()] = since
		}
	}
	c.since = left
	c.mu.Unlock()
	for state, age := range longest {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, age.Seconds(), string(state))
	}
}
