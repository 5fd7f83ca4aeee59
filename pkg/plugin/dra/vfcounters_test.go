package dra_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
)

// TestTheTrafficOfClaimedVFs is told for those that a claim has and that the PF
// counts, and for no others. Whose they are is told only where that is asked for.
func TestTheTrafficOfClaimedVFs(t *testing.T) {
	t.Run("with tenants", func(t *testing.T) { checkTraffic(t, true, " 0000:21:02.0 claim-uid-1 team-a 0000:21:00.0") })
	t.Run("without", func(t *testing.T) { checkTraffic(t, false, " 0000:21:02.0 0000:21:00.0") })
}

// checkTraffic checks the series of the one VF that has counted, with these values of labels.
func checkTraffic(t *testing.T, tenants bool, of string) {
	t.Helper()
	n := newNode(t)
	pf, vfs := n.k.AddNIC(0x21, 3)
	links := vftest.New(t, n.fs, vftest.Igb())
	policy := &vf.Policy{FS: n.fs, Links: links}
	n.metrics.WatchVFs(n.records.List, policy.Counters, tenants)
	n.prepared("uid-1", "vf-"+vfs[0].Label())
	n.prepared("uid-2", "vf-"+vfs[1].Label())
	links.Count(pf, 0, vf.Counters{RxBytes: 1500, TxBytes: 64, RxPackets: 1, TxPackets: 1, TxDropped: 7})
	links.Count(pf, 2, vf.Counters{RxBytes: 1}) // nobody's
	families, err := n.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if name, ok := strings.CutPrefix(f.GetName(), "kata_vfio_vf_"); ok {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				got[name+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue()
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
