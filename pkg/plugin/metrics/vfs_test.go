package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

// TestVFTraffic: it is counted for VFs that a claim has and whose PF counts, and for no others. Labels name the claim
// only where that is asked for.
func TestVFTraffic(t *testing.T) {
	t.Run("with tenants", func(t *testing.T) { checkTraffic(t, true, " 0000:21:02.0 claim-uid-1 team-a 0000:21:00.0") })
	t.Run("without", func(t *testing.T) { checkTraffic(t, false, " 0000:21:02.0 0000:21:00.0") })
}

// pfs count, except one that does not answer.
type pfs struct{ mute pci.Address }

func (p pfs) Counters(_ context.Context, a pci.Address) ([]vf.Counters, error) {
	if a == p.mute {
		return nil, errors.New("no answer")
	}
	return []vf.Counters{{RxBytes: 1500, TxBytes: 64, RxPackets: 1, TxPackets: 1, TxDropped: 7}, {}, {RxBytes: 1}}, nil
}

// checkTraffic checks the series of the one VF that has counted, with these values of labels.
func checkTraffic(t *testing.T, tenants bool, of string) {
	t.Helper()
	pf, mute := pci.Address{Bus: 0x21}, pci.Address{Bus: 0x22}
	records := []*journal.Record{
		withVF("uid-1", journal.Prepared, pf, 0),
		withVF("uid-2", journal.Prepared, pf, 1),
		withVF("uid-3", journal.Releasing, pf, 2),
		withVF("uid-4", journal.Prepared, mute, 0),
	}
	m := empty()
	m.WatchVFs(journalOf{records: records}, pfs{mute}, tenants)
	got := map[string]float64{}
	for _, f := range metricstest.Ours(t, m.Registry) {
		for _, metric := range f.GetMetric() {
			if name, ok := strings.CutPrefix(f.GetName(), "kata_vfio_vf_"); ok {
				got[name+" "+metricstest.Labels(metric)] = metric.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{
		"receive_bytes_total" + of: 1500, "transmit_bytes_total" + of: 64, "receive_packets_total" + of: 1,
		"transmit_packets_total" + of: 1, "receive_dropped_total" + of: 0, "transmit_dropped_total" + of: 7,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// withVF returns the record of a claim that has one VF.
func withVF(uid string, state journal.State, pf pci.Address, index int) *journal.Record {
	address := pci.Address{Bus: pf.Bus, Device: 2, Function: uint8(index)}
	return &journal.Record{State: state, Plan: plan.Plan{
		Claim:     plan.Ref{Namespace: "team-a", Name: "claim-" + uid, UID: uid},
		Functions: []plan.Function{{Address: address, PF: &pf, VF: &plan.VFChange{Index: index}}},
	}}
}
