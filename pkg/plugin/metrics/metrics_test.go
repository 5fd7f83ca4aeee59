package metrics_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// noRecords is the journal of a node that never had a claim.
type noRecords struct{}

func (noRecords) List() ([]*journal.Record, []error) { return nil, nil }

// journalOf is a journal that has the records and errors.
type journalOf struct {
	records []*journal.Record
	errs    []error
}

func (j journalOf) List() ([]*journal.Record, []error) { return j.records, j.errs }

// empty are the metrics of such a node.
func empty() *metrics.Metrics { return metrics.New(noRecords{}, func() int { return 0 }) }

// TestTroubleIsCounted: an alert can be set on damaged records and on writes
// that hang.
func TestTroubleIsCounted(t *testing.T) {
	late := &journal.Record{State: journal.Releasing, Since: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
	m := metrics.New(journalOf{[]*journal.Record{late}, []error{journal.ErrDamaged}}, func() int { return 2 })
	records, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_records")
	stuck, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_stuck_writes")
	if records["damaged"] != 1 || stuck[""] != 2 {
		t.Errorf("records %v, stuck %v; want 1 damaged and 2 stuck", records, stuck)
	}
	unfinished, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_unfinished_record_seconds")
	if age := unfinished["releasing"]; age < 3600 || age > 3700 || len(unfinished) != 1 {
		t.Errorf("unfinished records are %v, want one for an hour", unfinished)
	}
}

// TestRequestsToTheAPIServerAreCounted: by their answers, and those without one.
func TestRequestsToTheAPIServerAreCounted(t *testing.T) {
	m := empty()
	askAPI(t, m, http.StatusForbidden)
	askAPI(t, m, http.StatusForbidden)
	askAPI(t, m, noAnswer)
	want := map[string]float64{"403 PATCH": 2, "none PATCH": 1}
	if diff := cmp.Diff(want, metricstest.Counters(t, m.Registry, "kata_vfio_api_requests_total")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

const noAnswer = 0

// askAPI has an API server answer one counted request with a status, or not at all.
func askAPI(t *testing.T, m *metrics.Metrics, status int) {
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
	m := empty()
	why := "the inventory is stale"
	m.WatchReadiness(func() string { return why })
	stale, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_ready")
	why = ""
	ready, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_ready")
	if stale[""] != 0 || ready[""] != 1 {
		t.Errorf("stale: %v, ready: %v", stale, ready)
	}
}

// The gauge has what the last look found, and nothing of the looks before.
func TestChecksAreCounted(t *testing.T) {
	m := empty()
	m.ObserveAudit([]finding.Finding{{ID: "IOM-003", Severity: rule.Critical, State: finding.Fail}})
	m.ObserveAudit([]finding.Finding{
		{ID: "IOM-003", Severity: rule.Critical, State: finding.Pass},
		{ID: "ACS-001", Severity: rule.High, State: finding.Fail},
		{ID: "ACS-001", Severity: rule.High, State: finding.Fail},
	})
	got, zero := metricstest.Gauges(t, m.Registry, "kata_vfio_audit_check")
	want := map[string]float64{"IOM-003 critical pass": 1, "ACS-001 high fail": 2}
	if diff := cmp.Diff(want, got); diff != "" || zero != 0 {
		t.Errorf("%d zeros; -want +got:\n%s", zero, diff)
	}
	if last, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_audit_last_timestamp_seconds"); last[""] == 0 {
		t.Error("no time of the last look")
	}
}

type disks func() []journal.Space

func (d disks) Space() []journal.Space { return d() }

// TestFreeBytesThatAreNotKnown are not a number, which no alert compares.
func TestFreeBytesThatAreNotKnown(t *testing.T) {
	m, err := empty(), errors.New("no such file or directory")
	m.WatchDisks(disks(func() []journal.Space {
		return []journal.Space{{Dir: "/state", Free: 7}, {Dir: "/ledger", Free: 8, Err: err}}
	}))
	if all, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_state_free_bytes"); len(all) != 2 || !math.IsNaN(all["/ledger"]) || all["/state"] != 7 {
		t.Errorf("got %v, want NaN of one", all)
	}
	err = nil
	if all, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_state_free_bytes"); all["/ledger"] != 8 {
		t.Errorf("got %v, want 8", all)
	}
}
