// Package metricstest reads single metrics of a registry, for tests.
package metricstest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Ours returns all metrics of kata-vfio.
func Ours(t testing.TB, from prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var ours []*dto.MetricFamily
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "kata_vfio_") {
			ours = append(ours, f)
		}
	}
	return ours
}

// Family returns the metrics with a name.
func Family(t testing.TB, from prometheus.Gatherer, name string) []*dto.Metric {
	t.Helper()
	for _, f := range Ours(t, from) {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

// Labels returns the values of a metric's labels, in the order of their names.
func Labels(m *dto.Metric) string {
	var values []string
	for _, l := range m.GetLabel() {
		values = append(values, l.GetValue())
	}
	return strings.Join(values, " ")
}

// Gauges returns the nonzero values of a gauge, by labels, and the number of zeros.
func Gauges(t testing.TB, from prometheus.Gatherer, name string) (set map[string]float64, zero int) {
	t.Helper()
	set = map[string]float64{}
	for _, m := range Family(t, from, name) {
		if v := m.GetGauge().GetValue(); v != 0 {
			set[Labels(m)] = v
		} else {
			zero++
		}
	}
	return set, zero
}

// Counters returns the values of a counter, by labels.
func Counters(t testing.TB, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, m := range Family(t, from, name) {
		values[Labels(m)] = m.GetCounter().GetValue()
	}
	return values
}
