package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// warmLooks notes the looks at warm devices, and whether each may return some.
type warmLooks struct{ returns []bool }

func (l *warmLooks) KeepWarm(_ context.Context, how maintain.Warming) ([]maintain.WarmPool, error) {
	l.returns = append(l.returns, how.Return)
	return nil, nil
}

// TestWarmWatchLooksAfterChanges: once for several, and not for those that concern no driver. Devices are returned at ticks only.
func TestWarmWatchLooksAfterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := &warmLooks{}
		w := &plugin.WarmWatch{Devices: looks, Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }), Log: slog.New(slog.DiscardHandler)}
		snapshots, claimed, tick := make(chan *device.Snapshot), make(chan struct{}), make(chan time.Time)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Follow(ctx, snapshots, claimed, tick) }()
		snap := func(driver, name string) *device.Snapshot {
			return &device.Snapshot{Functions: []device.Function{{Address: pci.Address{Bus: 0x3b}, Driver: driver, Model: name}}}
		}
		after := func(what string, want ...bool) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if !slices.Equal(looks.returns, want) {
				t.Errorf("after %s: looks %v, want %v", what, looks.returns, want)
			}
			looks.returns = nil
		}
		after("the start", true)
		snapshots <- snap("nvidia", "")
		for range 8 {
			claimed <- struct{}{}
		}
		after("a burst of claims", false)
		snapshots <- snap("nvidia", "GH100")
		after("another name")
		snapshots <- snap("", "GH100")
		after("another driver", false)
		tick <- time.Now()
		after("a tick", true)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWarmWatchKeepsDevicesReady, and says what is ready and what is not.
func TestWarmWatchKeepsDevicesReady(t *testing.T) {
	n := plugintest.New(t)
	config := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Name: "gpus", Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Warm: v1alpha1.Share{Amount: 2}},
	}}
	config.Default()
	n.Reopen(func(c *prepare.Config) { c.Node = config })
	gpus := []pci.Address{n.Kernel.AddGPU(0x3b), n.Kernel.AddGPU(0x3c)}
	broken := true
	n.Kernel.OnWrite(func(_, value string) error {
		if broken && value == gpus[0].String() {
			return errors.New("broken")
		}
		return nil
	})
	var log bytes.Buffer
	w := &plugin.WarmWatch{Devices: n.Claims, Metrics: n.Metrics, Log: slog.New(slog.NewTextHandler(&log, nil))}
	wants := func(when string, ready float64, drivers ...string) {
		t.Helper()
		for i, a := range gpus {
			if got := n.Driver(a); got != drivers[i] {
				t.Errorf("%s: %s is on %q, want %q; log:\n%s", when, a, got, drivers[i], log.String())
			}
		}
		for name, want := range map[string]float64{"kata_vfio_warm_devices": ready, "kata_vfio_warm_devices_wanted": 2} {
			if got, _ := metricstest.Gauges(t, n.Metrics.Registry, name); got["rule 1 (gpus)"] != want {
				t.Errorf("%s: %s is %v, want %v", when, name, got, want)
			}
		}
	}
	for range 3 {
		w.Look(t.Context(), false)
	}
	wants("one fails", 1, "nvidia", "vfio-pci")
	if got := strings.Count(log.String(), "device not kept warm"); got != 1 {
		t.Errorf("it was logged %d times:\n%s", got, log.String())
	}
	broken = false
	w.Look(t.Context(), false)
	wants("before the tick", 1, "nvidia", "vfio-pci")
	tick, ended, ctx := make(chan time.Time), make(chan error), t.Context()
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- w.Follow(ctx, nil, nil, tick) }()
	tick <- time.Now()
	tick <- time.Now() // taken after the look of the first
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wants("after the tick", 2, "vfio-pci", "vfio-pci")
}
