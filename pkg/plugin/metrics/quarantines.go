package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// WatchQuarantines adds a gauge for each device in quarantine, which the journal has at each scrape. nameTenants says that the metrics may name
// namespaces and claims. Call it once.
func (m *Metrics) WatchQuarantines(records journal.Lister, nameTenants bool) {
	m.Registry.MustRegister(&quarantineCollector{records: records, nameTenants: nameTenants, desc: prometheus.NewDesc(
		"kata_vfio_quarantined_device_seconds",
		"How long a device has been in quarantine after a claim, by device, claim_namespace and claim; 0 if that is unknown.",
		[]string{"device", "claim_namespace", "claim"}, nil,
	)})
}

type quarantineCollector struct {
	records     journal.Lister
	nameTenants bool
	desc        *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *quarantineCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector]. If a device is in quarantine after two claims, it reports only the claim whose record has the
// first ID.
func (c *quarantineCollector) Collect(ch chan<- prometheus.Metric) {
	records, _ := c.records.List() // kata_vfio_records counts the damaged records
	seen := map[string]bool{}
	for _, rec := range records {
		if rec.State != journal.Quarantined {
			continue
		}
		namespace, claim := "", ""
		if c.nameTenants {
			namespace, claim = rec.Plan.Claim.Namespace, rec.Plan.Claim.Name
		}
		for _, parts := range rec.Plan.Allocated() {
			if name := parts[0].Published(); !seen[name] {
				seen[name] = true
				ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, age(rec).Seconds(), name, namespace, claim)
			}
		}
	}
}

// age returns how long a record has been in its state, or 0 if that is unknown.
func age(r *journal.Record) time.Duration {
	since, err := time.Parse(time.RFC3339, r.Since)
	if err != nil {
		return 0
	}
	return time.Since(since)
}
