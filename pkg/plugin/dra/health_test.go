package dra_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// ignored is a reset that does nothing.
func ignored(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetIgnored, nil }

func well(name string) kubeletplugin.DeviceHealth {
	return kubeletplugin.DeviceHealth{PoolName: "worker-1/kata-vfio.dev", DeviceName: name, Health: kubeletplugin.HealthStatusHealthy}
}

// TestHealthStream: at once, at each change, and well within the 30 seconds
// after which the kubelet forgets.
func TestHealthStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := dra.NewHealth()
		h.Set([]kubeletplugin.DeviceHealth{well("gpu")}, "")
		ctx, cancel := context.WithCancel(t.Context())
		reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error)
		go func() { ended <- h.Stream(ctx, reports) }()
		begin := time.Now()
		if r := <-reports; len(r.Devices) != 1 || r.Devices[0].Health != kubeletplugin.HealthStatusHealthy {
			t.Errorf("first report %+v", r)
		}
		if r := <-reports; time.Since(begin) > 15*time.Second || !r.Devices[0].LastUpdated.After(begin) {
			t.Errorf("report %+v came after %s", r, time.Since(begin))
		}
		synctest.Wait() // it waits for a change
		now := time.Now()
		sick := well("gpu")
		sick.Health, sick.Message = kubeletplugin.HealthStatusUnhealthy, "quarantined"
		h.Set([]kubeletplugin.DeviceHealth{sick}, "")
		r := <-reports
		if time.Since(now) > 0 || r.Devices[0].Message != "quarantined" {
			t.Errorf("report %+v came %s after the change", r, time.Since(now))
		}
		h.Set([]kubeletplugin.DeviceHealth{well("gpu")}, "scan: too many open files")
		if r := <-reports; r.Devices[0].Health != kubeletplugin.HealthStatusUnknown || !strings.Contains(r.Devices[0].Message, "too many") {
			t.Errorf("of a stale inventory: %+v", r)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestHealthStreamOfASlowReader: a kubelet that does not read does not hold
// up the plugin, and the stream ends with its context.
func TestHealthStreamOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := dra.NewHealth()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- h.Stream(ctx, make(chan kubeletplugin.DeviceHealthReport)) }()
		synctest.Wait()
		h.Set([]kubeletplugin.DeviceHealth{well("gpu")}, "")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestHealthThroughTheSocket: what the publisher finds reaches the kubelet.
func TestHealthThroughTheSocket(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	gpu := n.Kernel.AddGPU(0x3b)
	n.Publish(r)
	k := plugintest.Serve(t, n, n.Claims, "")
	stream, err := drahealthv1.NewDRAResourceHealthClient(k.Dial(filepath.Join(k.Dir, "plugin/dra.sock"))).
		NodeWatchResources(t.Context(), &drahealthv1.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	status := func() *drahealthv1.DeviceHealth {
		t.Helper()
		resp, err := stream.Recv()
		if err != nil || len(resp.Devices) != 1 {
			t.Fatalf("%v, %v; want the GPU's health", resp, err)
		}
		return resp.Devices[0]
	}
	if got := status(); got.Health != drahealthv1.HealthStatus_HEALTHY || got.Device.DeviceName != "gpu-0000-3b-00-0" || got.Device.PoolName != "worker-1/kata-vfio.dev" {
		t.Errorf("health %v", got)
	}
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	n.Kernel.SetConfig(gpu, 0x10, 0xde, 0xad)
	n.Kernel.OnReset(gpu, ignored)
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err == nil {
		t.Fatal("no quarantine")
	}
	n.Publish(r)
	if got := status(); got.Health != drahealthv1.HealthStatus_UNHEALTHY || !strings.Contains(got.Message, "quarantined") {
		t.Errorf("health %v", got)
	}
}

func TestReadiness(t *testing.T) {
	h := dra.NewHealth()
	steps := []struct {
		do   func()
		want string
	}{
		{func() {}, "the inventory is not published yet"},
		{func() { h.Set(nil, "") }, "the inventory is not published yet"},
		{h.Published, ""},
		{func() { h.Set(nil, "no /sys") }, "the inventory is stale: no /sys"},
		{func() { h.Withdraw(&dra.DroppedError{Gates: []string{"A", "B"}}) }, "A, B and restart"},
		{func() { h.Withdraw(&dra.DroppedError{}) }, "the API server does not say which"},
	}
	for _, s := range steps {
		s.do()
		if got := h.Ready(); !strings.Contains(got, s.want) || (got == "") != (s.want == "") {
			t.Errorf("Ready = %q, want %q", got, s.want)
		}
	}
}
