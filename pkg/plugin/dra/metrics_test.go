package dra_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// gather returns all metrics of ours.
func gather(t *testing.T, m *dra.Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.Registry.Gather()
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

// family returns the metrics of one name.
func family(t *testing.T, m *dra.Metrics, name string) []*dto.Metric {
	t.Helper()
	for _, f := range gather(t, m) {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

// labels returns the values of a metric's labels, in the order of their names.
func labels(m *dto.Metric) string {
	var values []string
	for _, l := range m.GetLabel() {
		values = append(values, l.GetValue())
	}
	return strings.Join(values, " ")
}

// gauges returns the values of a gauge that are not 0, by labels, and how many
// are 0.
func gauges(t *testing.T, m *dra.Metrics, name string) (set map[string]float64, zero int) {
	t.Helper()
	set = map[string]float64{}
	for _, metric := range family(t, m, name) {
		if v := metric.GetGauge().GetValue(); v != 0 {
			set[labels(metric)] = v
		} else {
			zero++
		}
	}
	return set, zero
}

// TestNamesAndHelp by the rules of Prometheus' own linter.
func TestNamesAndHelp(t *testing.T) {
	n := newNode(t)
	n.k.AddGPU(0x3b)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	n.publish(&recorder{})
	families := gather(t, n.metrics)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{
		"kata_vfio_audit_last_timestamp_seconds", "kata_vfio_claim_seconds",
		"kata_vfio_devices", "kata_vfio_ledger_events_total", "kata_vfio_ledger_failures_total", "kata_vfio_ledger_problems", "kata_vfio_ledger_size",
		"kata_vfio_ledger_verified_timestamp_seconds", "kata_vfio_ledger_written_bytes_total", "kata_vfio_phase_seconds",
		"kata_vfio_publish_failures_total", "kata_vfio_records", "kata_vfio_stuck_writes", "kata_vfio_unfinished_record_seconds",
		"kata_vfio_unprepare_failing_seconds",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestGauges: devices by type and health, records by state; what is 0 is there.
func TestGauges(t *testing.T) {
	n := newNode(t)
	n.k.AddGPU(0x3b)
	n.k.AddNIC(0x21, 2)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	for range 2 { // counting again counts nothing twice
		n.publish(&recorder{})
	}
	devices, _ := gauges(t, n.metrics, "kata_vfio_devices")
	if diff := cmp.Diff(map[string]float64{"healthy gpu": 1, "healthy vf": 2}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	records, zero := gauges(t, n.metrics, "kata_vfio_records")
	if diff := cmp.Diff(map[string]float64{"prepared": 1}, records); diff != "" || zero != 5 {
		t.Errorf("records, and %d states without (-want +got):\n%s", zero, diff)
	}
}

// TestTroubleIsCounted: an alert can be set on damaged records and on writes
// that hang.
func TestTroubleIsCounted(t *testing.T) {
	late := &journal.Record{State: journal.Releasing, Since: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
	m := dra.NewMetrics(func() ([]*journal.Record, []error) { return []*journal.Record{late}, []error{journal.ErrDamaged} }, func() int { return 2 })
	records, _ := gauges(t, m, "kata_vfio_records")
	stuck, _ := gauges(t, m, "kata_vfio_stuck_writes")
	if records["damaged"] != 1 || stuck[""] != 2 {
		t.Errorf("records %v, stuck %v; want 1 damaged and 2 stuck", records, stuck)
	}
	unfinished, _ := gauges(t, m, "kata_vfio_unfinished_record_seconds")
	if age := unfinished["releasing"]; age < 3600 || age > 3700 || len(unfinished) != 1 {
		t.Errorf("unfinished records are %v, want one for an hour", unfinished)
	}
}

// noRecords is the journal of a node that never had a claim.
func noRecords() ([]*journal.Record, []error) { return nil, nil }

// counters returns the values of a counter by labels.
func counters(t *testing.T, m *dra.Metrics, name string) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, metric := range family(t, m, name) {
		values[labels(metric)] = metric.GetCounter().GetValue()
	}
	return values
}

// TestRequestsToTheAPIServerAreCounted: by their answers, and those without one.
func TestRequestsToTheAPIServerAreCounted(t *testing.T) {
	m := dra.NewMetrics(noRecords, func() int { return 0 })
	askAPI(t, m, http.StatusForbidden)
	askAPI(t, m, http.StatusForbidden)
	askAPI(t, m, noAnswer)
	want := map[string]float64{"403 PATCH": 2, "none PATCH": 1}
	if diff := cmp.Diff(want, counters(t, m, "kata_vfio_api_requests_total")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

const noAnswer = 0

// askAPI has an API server answer one counted request with a status, or not at all.
func askAPI(t *testing.T, m *dra.Metrics, status int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	if status == noAnswer {
		server.Close()
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: m.CountRequests(server.Client().Transport)}).Do(request)
	if (err != nil) != (status == noAnswer) {
		t.Errorf("%v, %v", response, err)
	}
	if err == nil {
		_ = response.Body.Close() // it has none
	}
}

// TestReadinessIsAMetric: an alert needs no probe.
func TestReadinessIsAMetric(t *testing.T) {
	m := dra.NewMetrics(noRecords, func() int { return 0 })
	why := "the inventory is stale"
	m.WatchReadiness(func() string { return why })
	stale, _ := gauges(t, m, "kata_vfio_ready")
	why = ""
	ready, _ := gauges(t, m, "kata_vfio_ready")
	if stale[""] != 0 || ready[""] != 1 {
		t.Errorf("stale: %v, ready: %v", stale, ready)
	}
}

// TestPhases: the histogram reaches from a write to what the kubelet waits for.
func TestPhases(t *testing.T) {
	n := newNode(t)
	n.k.AddGPU(0x3b)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.publish(&recorder{})
	n.metrics.Observe(prepare.Event{Phase: prepare.PhaseReset, Took: time.Minute, Err: context.DeadlineExceeded})
	count := map[string]uint64{}
	for _, m := range family(t, n.metrics, "kata_vfio_phase_seconds") {
		buckets := m.GetHistogram().GetBucket()
		if last := buckets[len(buckets)-1].GetUpperBound(); last != 60 {
			t.Errorf("the last bucket ends at %v s, want 60", last)
		}
		count[labels(m)] = m.GetHistogram().GetSampleCount()
	}
	for _, phase := range []string{"wait ok", "unbind ok", "bind ok", "reset ok", "reset error", "node ok", "journal ok", "cdi ok", "scan ok", "publish ok"} {
		if count[phase] == 0 {
			t.Errorf("phase %q was not counted", phase)
		}
	}
	if n := count["unbind ok"]; n != 2 {
		t.Errorf("%d unbinds, want one each way", n)
	}
}
