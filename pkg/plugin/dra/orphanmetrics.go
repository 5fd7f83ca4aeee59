package dra

import "github.com/prometheus/client_golang/prometheus"

// orphanMetrics tell of what is left over on the node.
type orphanMetrics struct {
	found   *prometheus.GaugeVec
	repairs *prometheus.CounterVec
}

func newOrphanMetrics(r *prometheus.Registry) orphanMetrics {
	m := orphanMetrics{
		found: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_orphans",
			Help: "What is left over on the node and is left alone, by kind: claim (its ResourceClaim is gone), spec (a CDI spec without a record), binding (a function on VFIO without a record).",
		}, []string{"kind"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_repairs_total", Help: "Orphans that were mended, or could not be, by kind (claim, spec, binding) and result (ok, error).",
		}, []string{"kind", "result"}),
	}
	r.MustRegister(m.found, m.repairs)
	return m
}
