package dra

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// apiMetrics tell how the plugin and the API server get on.
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

// WatchReadiness adds a gauge that is 1 while ready returns nothing, as /readyz
// asks it. Call it once.
func (m *Metrics) WatchReadiness(ready func() string) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kata_vfio_ready", Help: "1 while what is published is the node as it is; 0 while it is not, and /readyz says why.",
	}, func() float64 {
		if ready() == "" {
			return 1
		}
		return 0
	}))
}

// CountRequests returns a transport that counts what goes through next.
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

// WrappedRoundTripper lets client-go find the transport beneath.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
