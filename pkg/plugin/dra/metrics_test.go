package dra_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestNamesAndHelp by the rules of Prometheus' own linter.
func TestNamesAndHelp(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	n.Publish(&plugintest.Recorder{})
	families := metricstest.Ours(t, n.Metrics.Registry)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{
		"kata_vfio_audit_last_timestamp_seconds", "kata_vfio_claim_duration_seconds",
		"kata_vfio_devices", "kata_vfio_gpus", "kata_vfio_ledger_events_total", "kata_vfio_ledger_failures_total", "kata_vfio_ledger_problems", "kata_vfio_ledger_size",
		"kata_vfio_ledger_verified_timestamp_seconds", "kata_vfio_ledger_written_bytes_total", "kata_vfio_phase_duration_seconds",
		"kata_vfio_prepared_claims_total", "kata_vfio_publish_failures_total", "kata_vfio_records", "kata_vfio_stuck_writes", "kata_vfio_unfinished_record_seconds",
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
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Kernel.AddNIC(0x21, 2)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	for range 2 { // counting again counts nothing twice
		n.Publish(&plugintest.Recorder{})
	}
	devices, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_devices")
	if diff := cmp.Diff(map[string]float64{"healthy gpu": 1, "healthy vf": 2}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	records, zero := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_records")
	if diff := cmp.Diff(map[string]float64{"prepared": 1}, records); diff != "" || zero != 5 {
		t.Errorf("records, and %d states without (-want +got):\n%s", zero, diff)
	}
}

// TestGPUsByModel: a claimed GPU is not free, each state of a model has a series, and NICs have none.
func TestGPUsByModel(t *testing.T) {
	n := plugintest.New(t)
	for _, bus := range []uint8{0x3b, 0x3c, 0x3d} {
		n.Kernel.AddGPU(bus)
	}
	n.Kernel.AddNIC(0x21, 2)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	n.Publish(&plugintest.Recorder{})
	got := map[string]float64{}
	for _, f := range metricstest.Ours(t, n.Metrics.Registry) {
		if f.GetName() != "kata_vfio_gpus" {
			continue
		}
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(map[string]float64{"10de:2330 claimed": 1, "10de:2330 free": 2, "10de:2330 tainted": 0}, got); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
}

// TestPhases: the histogram reaches from a write to what the kubelet waits for.
func TestPhases(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.Publish(&plugintest.Recorder{})
	n.Metrics.Observe(effects.Event{Phase: effects.PhaseReset, Took: time.Minute, Err: context.DeadlineExceeded})
	count := map[string]uint64{}
	for _, m := range metricstest.Family(t, n.Metrics.Registry, "kata_vfio_phase_duration_seconds") {
		buckets := m.GetHistogram().GetBucket()
		if last := buckets[len(buckets)-1].GetUpperBound(); last != 60 {
			t.Errorf("the last bucket ends at %v s, want 60", last)
		}
		count[metricstest.Labels(m)] = m.GetHistogram().GetSampleCount()
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
