package plugin_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestDrainIsSeenAndTold: another process makes it; the plugin taints the device,
// counts it, and tells of each change once.
func TestDrainIsSeenAndTold(t *testing.T) {
	n := plugintest.New(t)
	gpu, _ := n.Kernel.AddGPUWithAudio(0x62, 15)
	n.Kernel.AddGPU(0x3b)
	const name = "gpu-0000-62-00-0"
	n.Prepare("uid-1", name)
	n.Metrics.WatchDrains(func() map[pci.Address]rule.Code {
		drains, _ := n.Claims.Drains(t.Context())
		return dra.DrainStates(drains)
	})
	events, changes := &plugintest.EventLog{}, plugintest.NewWakes()
	watch := plugin.DrainWatch{
		Devices: n.Claims, Reporter: dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: events, Log: plugintest.Quiet()}), Node: "worker-1", Log: plugintest.Quiet(),
		Changes: changes,
	}
	var r plugintest.Recorder
	look := func(wantChanges int, taints []string, states map[string]float64) {
		t.Helper()
		for range 2 { // the second look finds nothing new
			watch.Look(t.Context())
		}
		n.Publish(&r)
		if diff := cmp.Diff(map[string][]string{name: taints, "gpu-0000-3b-00-0": {}}, r.Devices()); diff != "" {
			t.Errorf("taints (-want +got):\n%s", diff)
		}
		var got map[string]float64
		if states != nil {
			got, _ = metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_drained")
		}
		if diff := cmp.Diff(states, got); diff != "" || len(changes) != wantChanges {
			t.Errorf("%d changes, want %d; metrics (-want +got):\n%s", len(changes), wantChanges, diff)
		}
	}
	look(0, []string{}, nil)
	if _, err := n.Claims.Drain(t.Context(), journal.Drain{Address: gpu, Reason: "fan"}, ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	look(1, []string{"drain"}, map[string]float64{"0000:62:00.0 Draining": 1, "0000:62:00.1 Draining": 1})
	if got, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_devices"); got["unhealthy gpu"] > 0 {
		t.Errorf("devices: %v, want none unhealthy for a drain", got)
	}
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	look(2, []string{"drain"}, map[string]float64{"0000:62:00.0 Drained": 1, "0000:62:00.1 Drained": 1})
	if _, _, err := n.Claims.Undrain(t.Context(), gpu, "", ledger.Operator{}); err != nil {
		t.Fatal(err)
	}
	look(3, []string{}, nil)
	events.Want(t, "Node /worker-1 Normal Draining Drain: 0000:62:00.0 is being drained (fan)",
		"Node /worker-1 Normal Drained Drain: 0000:62:00.0", "Node /worker-1 Normal Undrained Drain: 0000:62:00.0")
}

// flaky finishes no drain, and when it is broken it says of one less than there are.
type flaky struct {
	*plugintest.Claims
	broken bool
}

func (f *flaky) FinishDrains(ctx context.Context) ([]maintain.Draining, error) {
	drains, err := f.Drains(ctx)
	if err != nil || !f.broken {
		return drains, err
	}
	return drains[:1], errors.New("input/output error")
}

// TestDrainThatCanNotBeLookedAtIsNotOver: and nobody is told that it is.
func TestDrainThatCanNotBeLookedAtIsNotOver(t *testing.T) {
	n := plugintest.New(t)
	n.Reopen(func(c *prepare.Config) {
		c.Node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
			Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound,
		}}}
		c.Node.Default()
	})
	gpus := []pci.Address{n.Kernel.AddGPU(0x3b), n.Kernel.AddGPU(0x3c)}
	if err := n.Claims.BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, gpu := range gpus {
		if err := n.Records.MarkDrained(t.Context(), journal.Drain{Address: gpu, Reason: "fan"}); err != nil {
			t.Fatal(err)
		}
	}
	events, changes, devices := &plugintest.EventLog{}, plugintest.NewWakes(), &flaky{Claims: n.Claims}
	watch := plugin.DrainWatch{
		Devices: devices, Reporter: dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: events, Log: plugintest.Quiet()}), Node: "worker-1", Log: plugintest.Quiet(),
		Changes: changes,
	}
	for _, devices.broken = range []bool{false, true, false} {
		watch.Look(t.Context())
	}
	events.Want(t)
	if len(changes) != 1 {
		t.Errorf("%d changes, want the first look's", len(changes))
	}
}

// TestUndrainThatLeavesAnotherIsNoReturnToUse.
func TestUndrainThatLeavesAnotherIsNoReturnToUse(t *testing.T) {
	n := plugintest.New(t)
	pf, vfs := n.Kernel.AddNIC(0x21, 2)
	events := &plugintest.EventLog{}
	watch := plugin.DrainWatch{
		Devices: n.Claims, Reporter: dra.NewReporter(dra.ReporterConfig{Client: plugintest.Cluster(), Recorder: events, Log: plugintest.Quiet()}), Node: "worker-1", Log: plugintest.Quiet(), Changes: plugintest.NewWakes(),
	}
	for _, d := range []journal.Drain{{Address: vfs[0], Reason: "tenant"}, {Address: pf, Reason: "cable"}} {
		if _, err := n.Claims.Drain(t.Context(), d, ledger.Operator{}); err != nil {
			t.Fatal(err)
		}
	}
	watch.Look(t.Context())
	for range 2 {
		if _, _, err := n.Claims.Undrain(t.Context(), vfs[0], "", ledger.Operator{}); err != nil {
			t.Fatal(err)
		}
		watch.Look(t.Context())
	}
	events.Want(t, "Node /worker-1 Normal Undrained Drain: "+vfs[0].String()+" is still drained, with "+pf.String()+" (cable)",
		"Node /worker-1 Normal Undrained Drain: "+pf.String()+" is in use again")
}
