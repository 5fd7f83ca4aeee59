package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func newFragmented(r *prometheus.Registry) *prometheus.GaugeVec {
	fragmented := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kata_vfio_domain_fragmented",
		Help: "Free devices that only the tenant of their exclusive domain can get now, by kind of domain (Card, PF, Switch, RootPort, NUMA, Node, Fabric).",
	}, []string{"domain"})
	r.MustRegister(fragmented)
	return fragmented
}

// ObserveFragmented sets how many free devices exclusive domains keep for their tenants, by kind, and replaces the former numbers.
func (m *Metrics) ObserveFragmented(counts map[isolation.DomainKind]int) {
	m.fragmented.Reset()
	for kind, count := range counts {
		m.fragmented.WithLabelValues(string(kind)).Set(float64(count))
	}
}
