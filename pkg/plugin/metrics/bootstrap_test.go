package metrics_test

import (
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

type recordFile func() (*state.Record, error)

func (f recordFile) Read() (*state.Record, error) { return f() }

func TestMetricsServeBootstrapResult(t *testing.T) {
	var record *state.Record
	var err error
	m := empty()
	m.WatchBootstrap(recordFile(func() (*state.Record, error) { return record, err }))
	outcomes := func() map[string]float64 {
		set, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_bootstrap_outcome")
		return set
	}

	err = fmt.Errorf("read: %w", fs.ErrNotExist)
	if got := outcomes(); len(got) != 0 {
		t.Errorf("nobody has looked: %v", got)
	}
	err = state.ErrDamaged
	if diff := cmp.Diff(map[string]float64{" unreadable": 1}, outcomes()); diff != "" {
		t.Errorf("a damaged record (-want +got):\n%s", diff)
	}
	at := time.Unix(1_800_000_000, 0)
	twice := state.Difference{Part: "kernel", What: "problem", Why: "a"}
	other := twice
	other.Why, other.Since = "b", at.Add(-time.Minute)
	record, err = state.NewRecord(at, "pool", "can't be made fit", []state.Difference{twice, other, {Part: "modules", Path: "/etc/x", What: "changed", Since: at}}, nil), nil
	if diff := cmp.Diff(map[string]float64{"pool can't be made fit": 1}, outcomes()); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	since, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_bootstrap_drift_timestamp_seconds")
	if diff := cmp.Diff(map[string]float64{"kernel  problem": 1_799_999_940, "modules /etc/x changed": 1_800_000_000}, since); diff != "" {
		t.Errorf("since when (-want +got):\n%s", diff)
	}
	if verified, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_bootstrap_verified_timestamp_seconds"); verified[""] != 1_800_000_000 {
		t.Errorf("verified at %v", verified)
	}
}
