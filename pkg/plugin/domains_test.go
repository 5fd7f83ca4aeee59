package plugin

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestFragmentationIsCounted follows a node with three GPUs, one of which stops answering, through a tenant's claim.
func TestFragmentationIsCounted(t *testing.T) {
	claim := plan.Ref{UID: "u", Namespace: "team-a", Name: "train", Tenant: "0123456789abcdef"}
	for name, tt := range map[string]struct {
		exclusive []v1alpha1.ExclusiveDomain
		claimed   bool
		want      map[string]float64
		zero      int
	}{
		"no exclusive domain":   {nil, true, map[string]float64{}, 0},
		"the node is free":      {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNode}, false, map[string]float64{}, 1},
		"a tenant has the node": {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveNode}, true, map[string]float64{"Node": 1}, 0},
		"a tenant has a card":   {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard}, true, map[string]float64{}, 1},
		"both kinds":            {[]v1alpha1.ExclusiveDomain{v1alpha1.ExclusiveCard, v1alpha1.ExclusiveFabric}, true, map[string]float64{"Fabric": 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Exclusive: tt.exclusive}}}
			kernel := sysfstest.New(t)
			first, _, dead := kernel.AddGPU(0x3b), kernel.AddGPU(0x3c), kernel.AddGPU(0x3d)
			kernel.SetConfig(dead, 0, 0xff, 0xff, 0xff, 0xff)
			n, err := node.Look(node.Config{Root: kernel.Root(), StateDir: node.DefaultStateDir, Node: cfg})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = n.Close() })
			s := &service{node: n, log: slog.New(slog.DiscardHandler), metrics: metrics.New(n.Parts.Journal, func() int { return 0 })}
			snap, err := n.Parts.Inventory.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if tt.claimed {
				store, err := journal.Open(kernel.Path(journal.DefaultDir))
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Save(&journal.Record{Kind: journal.Claim, State: journal.Prepared, BootID: snap.Host.BootID, Plan: plan.Plan{
					Claim: claim, Functions: []plan.Function{{Address: first}}, Devices: []plan.Device{{Name: "gpu-0000-3b-00-0", Address: first}},
				}}); err != nil {
					t.Fatal(err)
				}
			}
			s.countDomains(t.Context(), snap)
			got, zero := metricstest.Gauges(t, s.metrics.Registry, "kata_vfio_domain_fragmented")
			if diff := cmp.Diff(tt.want, got); diff != "" || zero != tt.zero {
				t.Errorf("by kind (-want +got):\n%s%d of 0, want %d", diff, zero, tt.zero)
			}
		})
	}
}
