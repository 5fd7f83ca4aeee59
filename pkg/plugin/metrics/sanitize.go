package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// newStages returns the histogram of sanitizing stages. Its counts are those of the results.
func newStages(r *prometheus.Registry) *prometheus.HistogramVec {
	stages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kata_vfio_sanitize_stage_duration_seconds",
		Help: "Time of each sanitizing stage from the preparation of its device to the decision, by profile and verdict (Clean, Dirty, Unknown, Interrupted).",
		// From a VM's boot to a large drive, in seconds.
		Buckets: []float64{10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600},
	}, []string{"profile", "verdict"})
	r.MustRegister(stages)
	return stages
}

// ObserveStage counts a decided sanitizing stage.
func (m *Metrics) ObserveStage(profile string, verdict sanitize.Verdict, took time.Duration) {
	m.stages.WithLabelValues(profile, string(verdict)).Observe(took.Seconds())
}
