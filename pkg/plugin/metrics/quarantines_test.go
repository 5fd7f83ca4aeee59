package metrics_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

// TestQuarantinedDevicesAreNamed, with their claims only if tenants may be named, and without those that are not in quarantine.
func TestQuarantinedDevicesAreNamed(t *testing.T) {
	record := func(state journal.State, claim, device, since string) *journal.Record {
		return &journal.Record{State: state, Since: since, Plan: plan.Plan{
			Claim: plan.Ref{UID: claim, Namespace: "team-a", Name: claim}, Devices: []plan.Device{{Name: device, Pool: "worker-1"}},
		}}
	}
	hour := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	records := journalOf{records: []*journal.Record{
		record(journal.Quarantined, "train", "gpu-0000-3b-00-0", hour), record(journal.Quarantined, "old", "gpu-0000-3c-00-0", hour),
		record(journal.Prepared, "runs", "gpu-0000-3d-00-0", hour), record(journal.Quarantined, "again", "gpu-0000-3b-00-0", hour),
	}}
	for names, want := range map[bool]map[string]bool{
		true:  {"train team-a gpu-0000-3b-00-0": true, "old team-a gpu-0000-3c-00-0": true},
		false: {"  gpu-0000-3b-00-0": true, "  gpu-0000-3c-00-0": true},
	} {
		m := empty()
		m.WatchQuarantines(records, names)
		found, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_quarantined_device_seconds")
		got := map[string]bool{}
		for labels, seconds := range found {
			got[labels] = seconds > 3500 && seconds < 3700
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with tenants %t, the devices differ (-want +got):\n%s", names, diff)
		}
	}
}
