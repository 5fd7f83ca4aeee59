package dra_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestADrainIsSeenAndTold: another process makes it; the plugin taints the device,
// counts it, and tells of each change once.
func TestADrainIsSeenAndTold(t *testing.T) {
	n := newNode(t)
	gpu, _ := n.k.AddGPUWithAudio(0x62, 15)
	n.k.AddGPU(0x3b)
	const name = "gpu-0000-62-00-0"
	n.prepared("uid-1", name)
	n.publisher.Drains = func(snap *device.Snapshot) []maintain.Draining {
		drains, _ := n.claims.DrainsIn(snap)
		return drains
	}
	n.metrics.WatchDrains(func() map[pci.Address]publish.DrainState {
		drains, _ := n.claims.Drains(t.Context())
		return dra.DrainStates(drains)
	})
	events, changes := &eventLog{}, 0
	watch := dra.DrainWatch{
		Devices: n.claims, Reporter: dra.NewReporter(cluster(), events, quiet()), Node: "worker-1", Log: quiet(),
		Changed: func() { changes++ },
	}
	var r recorder
	look := func(wantChanges int, taints []string, states map[string]float64) {
		t.Helper()
		for range 2 { // the second look finds nothing new
			watch.Look(t.Context())
		}
		n.publish(&r)
		if diff := cmp.Diff(map[string][]string{name: taints, "gpu-0000-3b-00-0": {}}, r.devices()); diff != "" {
			t.Errorf("taints (-want +got):\n%s", diff)
		}
		var got map[string]float64
		if states != nil {
			got, _ = metricstest.Gauges(t, n.metrics.Registry, "kata_vfio_drained")
		}
		if diff := cmp.Diff(states, got); diff != "" || changes != wantChanges {
			t.Errorf("%d changes, want %d; metrics (-want +got):\n%s", changes, wantChanges, diff)
		}
	}
	look(0, []string{}, nil)
	if _, err := n.claims.Drain(t.Context(), journal.Drain{Address: gpu, Reason: "fan"}, ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	look(1, []string{"drain"}, map[string]float64{"0000:62:00.0 Draining": 1, "0000:62:00.1 Draining": 1})
	if got, _ := metricstest.Gauges(t, n.metrics.Registry, "kata_vfio_devices"); got["unhealthy gpu"] > 0 {
		t.Errorf("devices: %v, want none unhealthy for a drain", got)
	}
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	look(2, []string{"drain"}, map[string]float64{"0000:62:00.0 Drained": 1, "0000:62:00.1 Drained": 1})
	if _, _, err := n.claims.Undrain(t.Context(), gpu, "", ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	look(3, []string{}, nil)
	events.want(t, "Node /worker-1 Normal Draining Drain: 0000:62:00.0 is taken out of use (fan)",
		"Node /worker-1 Normal Drained Drain: 0000:62:00.0", "Node /worker-1 Normal Undrained Drain: 0000:62:00.0")
}

// flaky finishes no drain, and when it is broken it says of one less than there are.
type flaky struct {
	*claims
	broken bool
}

func (f *flaky) FinishDrains(ctx context.Context) ([]maintain.Draining, error) {
	drains, err := f.Drains(ctx)
	if err != nil || !f.broken {
		return drains, err
	}
	return drains[:1], errors.New("input/output error")
}

// TestADrainThatCanNotBeLookedAtIsNotOver: and nobody is told that it is.
func TestADrainThatCanNotBeLookedAtIsNotOver(t *testing.T) {
	n := newNode(t)
	n.reopen(func(c *prepare.Config) {
		c.Node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
			Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound,
		}}}
		c.Node.Default()
	})
	gpus := []pci.Address{n.k.AddGPU(0x3b), n.k.AddGPU(0x3c)}
	if err := n.claims.BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, gpu := range gpus {
		if err := n.records.MarkDrained(journal.Drain{Address: gpu, Reason: "fan"}); err != nil {
			t.Fatal(err)
		}
	}
	events, changes, devices := &eventLog{}, 0, &flaky{claims: n.claims}
	watch := dra.DrainWatch{
		Devices: devices, Reporter: dra.NewReporter(cluster(), events, quiet()), Node: "worker-1", Log: quiet(),
		Changed: func() { changes++ },
	}
	for _, devices.broken = range []bool{false, true, false} {
		watch.Look(t.Context())
	}
	events.want(t)
	if changes != 1 {
		t.Errorf("%d changes, want the first look's", changes)
	}
}

// TestAnUndrainThatLeavesAnotherIsNoReturnToUse.
func TestAnUndrainThatLeavesAnotherIsNoReturnToUse(t *testing.T) {
	n := newNode(t)
	pf, vfs := n.k.AddNIC(0x21, 2)
	events := &eventLog{}
	watch := dra.DrainWatch{
		Devices: n.claims, Reporter: dra.NewReporter(cluster(), events, quiet()), Node: "worker-1", Log: quiet(), Changed: func() {},
	}
	for _, d := range []journal.Drain{{Address: vfs[0], Reason: "tenant"}, {Address: pf, Reason: "cable"}} {
		if _, err := n.claims.Drain(t.Context(), d, ledger.Operator{}); err != nil {
			t.Fatal(err)
		}
	}
	watch.Look(t.Context())
	for range 2 {
		if _, _, err := n.claims.Undrain(t.Context(), vfs[0], "", ledger.Operator{}); err != nil {
			t.Fatal(err)
		}
		watch.Look(t.Context())
	}
	events.want(t, "Node /worker-1 Normal Undrained Drain: "+vfs[0].String()+" is out of use still, with "+pf.String()+" (cable)",
		"Node /worker-1 Normal Undrained Drain: "+pf.String()+" is in use again")
}
