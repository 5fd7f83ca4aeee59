package dra_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestPublishOnChangeOnly: a generation bump blocks a whole pool for the
// scheduler, so what is the same is not published again.
func TestPublishOnChangeOnly(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	n.Publish(r)
	n.Publish(r)
	if len(r.Published) != 1 {
		t.Fatalf("published %d times, want once", len(r.Published))
	}
	n.Kernel.AddGPU(0x3c)
	n.Publish(r)
	if len(r.Published) != 2 {
		t.Fatalf("published %d times, want a second time for the new GPU", len(r.Published))
	}
	want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {}}
	if diff := cmp.Diff(want, r.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestPublishAgainForAnotherVersion of Kata, once, when bootstrap finds it.
func TestPublishAgainForAnotherVersion(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	n.Facts.Software.Plugin = "v0.1.0"
	n.Publish(r)
	n.Facts.Software.Kata = "4.1.0"
	n.Publish(r)
	n.Publish(r)
	if len(r.Published) != 2 {
		t.Fatalf("published %d times, want twice", len(r.Published))
	}
	attributes := n.Publisher.Attributes("gpu-0000-3b-00-0")
	for name, want := range map[resourceapi.QualifiedName]string{publish.AttrPluginVersion: "0.1.0", publish.AttrKataVersion: "4.1.0"} {
		if got := attributes[name].VersionValue; got == nil || *got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
}

// TestPublishAgainAfterAnError: what was not handed over is not done.
func TestPublishAgainAfterAnError(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{Err: errors.New("no node name")}
	n.Kernel.AddGPU(0x3b)
	if err := n.Publisher.Publish(t.Context(), r, n.Snapshot()); !errors.Is(err, r.Err) {
		t.Errorf("got %v, want %v", err, r.Err)
	}
	r.Err = nil
	n.Publish(r)
	if len(r.Published) != 1 {
		t.Errorf("published %d times, want once", len(r.Published))
	}
}

// TestPublishAgainWhatTheHelperCouldNotWrite, once for each error, before the helper's own pause ends. What the API server
// refuses stays with the helper: its pauses grow.
func TestPublishAgainWhatTheHelperCouldNotWrite(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	n.Publish(r)
	d := dra.NewPlugin(dra.PluginConfig{Log: plugintest.Quiet(), Metrics: n.Metrics, Publisher: n.Publisher})
	for want, err := range []error{
		1: apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", errors.New("not of this node")), 2: errors.New("connection refused"),
	} {
		if err == nil {
			continue
		}
		d.HandleError(t.Context(), errors.Join(err, kubeletplugin.ErrRecoverable), "processing ResourceSlice objects")
		n.Publish(r)
		n.Publish(r)
		if len(r.Published) != want {
			t.Errorf("%v: published %d times, want %d", err, len(r.Published), want)
		}
	}
}

// waiting is an API server that does not answer until it is told to.
type waiting struct{ entered, leave chan struct{} }

func (w waiting) PublishResources(context.Context, resourceslice.DriverResources) error {
	close(w.entered)
	<-w.leave
	return nil
}

// TestAttributesDoNotWaitForTheAPIServer: a claim is prepared while the first
// publishing still waits, and the plugin is not ready before it is through.
func TestAttributesDoNotWaitForTheAPIServer(t *testing.T) {
	n, w := plugintest.New(t), waiting{make(chan struct{}), make(chan struct{})}
	n.Kernel.AddGPU(0x3b)
	snap, published := n.Snapshot(), make(chan error)
	go func() { published <- n.Publisher.Publish(t.Context(), w, snap) }()
	<-w.entered
	if n.Publisher.Attributes("gpu-0000-3b-00-0") == nil {
		t.Error("no attributes")
	}
	if n.Health.Ready() == "" {
		t.Error("ready though nothing is published")
	}
	close(w.leave)
	if err := <-published; err != nil || n.Health.Ready() != "" {
		t.Errorf("published: %v, ready: %q", err, n.Health.Ready())
	}
}

// TestEmptyNodePublishesAPool: no slices at all would leave the old ones of an
// earlier plugin in place.
func TestEmptyNodePublishesAPool(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Publish(r)
	if len(r.Published) != 1 || len(r.Published[0].Pools) == 0 || len(r.Devices()) != 0 {
		t.Errorf("published %+v, want one pool without devices", r.Published)
	}
}

// TestPreparedDeviceStaysPublished, with the name and pool that it was
// allocated by, though its function is on another driver, or gone.
func TestPreparedDeviceStaysPublished(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	gpu := n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	n.Publish(r)
	if taints, ok := r.Devices()["gpu-0000-3b-00-0"]; !ok || len(taints) > 0 {
		t.Errorf("devices %v, want the GPU without taints", r.Devices())
	}
	n.Kernel.Remove(gpu)
	n.Publish(r)
	if taints := r.Devices()["gpu-0000-3b-00-0"]; len(taints) == 0 {
		t.Errorf("devices %v, want the GPU that is gone tainted", r.Devices())
	}
}

// TestQuarantineIsATaint, for as long as it lasts, and the device is unhealthy.
func TestQuarantineIsATaint(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	gpu := n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	whole, err := n.FS.ConfigSpace(gpu)
	if err != nil {
		t.Fatal(err)
	}
	n.Kernel.SetConfig(gpu, 0x10, 0xde, 0xad)
	n.Kernel.OnReset(gpu, ignored)
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err == nil {
		t.Fatal("no quarantine")
	}
	n.Publish(r)
	if diff := cmp.Diff(map[string][]string{"gpu-0000-3b-00-0": {"quarantined"}}, r.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	n.Kernel.SetConfig(gpu, 0, whole...)
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.Publish(r)
	if diff := cmp.Diff(map[string][]string{"gpu-0000-3b-00-0": {}}, r.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestAttributes: containers are told what the ResourceSlice says.
func TestAttributes(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	if got := n.Publisher.Attributes("gpu-0000-3b-00-0"); got != nil {
		t.Errorf("attributes %v before anything was published", got)
	}
	n.Publish(r)
	got := n.Publisher.Attributes("gpu-0000-3b-00-0")["resource.kubernetes.io/pciBusID"]
	if got.StringValue == nil || *got.StringValue != "0000:3b:00.0" {
		t.Errorf("pciBusID %v", got)
	}
	if got := n.Publisher.Attributes("gpu-0000-ee-00-0"); got != nil {
		t.Errorf("attributes %v of nothing", got)
	}
}

// dropped is what the helper reports when the API server does not know fields.
func dropped() error {
	slice := func(counters bool) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{}
		if counters {
			s.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "pf"}}
		}
		return s
	}
	return &resourceslice.DroppedFieldsError{PoolName: "worker-1/kata-vfio.dev", DesiredSlice: slice(true), ActualSlice: slice(false)}
}

// TestDroppedFieldsWithdrawEverything: without counters two tenants could get
// one piece of hardware. Nothing is offered any more, and the plugin is not
// ready; claims that are allocated go on.
func TestDroppedFieldsWithdrawEverything(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	n.Publish(r)
	woken := plugintest.NewWakes()
	d := dra.NewPlugin(dra.PluginConfig{
		Health: n.Health, Metrics: n.Metrics, Log: plugintest.Quiet(), Changes: woken, Fatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	d.HandleError(t.Context(), fmt.Errorf("sync: %w", dropped()), "publishing")
	if len(woken) != 1 {
		t.Errorf("the publisher was woken %d times", len(woken))
	}
	n.Publish(r)
	if len(r.Devices()) != 0 || len(r.Published[1].Pools["worker-1/kata-vfio.dev"].Slices) != 1 {
		t.Errorf("published %+v, want one empty slice", r.Published[1])
	}
	ready := n.Health.Ready()
	for _, word := range []string{"DRAPartitionableDevices", "restart the plugin", "no device is published"} {
		if !strings.Contains(ready, word) {
			t.Errorf("readiness %q does not say %q", ready, word)
		}
	}
	if n.Publisher.Attributes("gpu-0000-3b-00-0") == nil {
		t.Error("a claim that is allocated would lose its device's metadata")
	}
}

// TestHandleError: what the helper retries is logged; what it can't recover
// from ends the plugin.
func TestHandleError(t *testing.T) {
	n := plugintest.New(t)
	var fatal error
	d := dra.NewPlugin(dra.PluginConfig{Health: n.Health, Metrics: n.Metrics, Log: plugintest.Quiet(), Changes: plugintest.NewWakes(), Fatal: func(err error) { fatal = err }})
	d.HandleError(t.Context(), fmt.Errorf("update: %w", kubeletplugin.ErrRecoverable), "publishing")
	if fatal != nil {
		t.Errorf("fatal: %v", fatal)
	}
	gone := errors.New("the socket is gone")
	d.HandleError(t.Context(), gone, "gRPC server failed")
	if !errors.Is(fatal, gone) {
		t.Errorf("fatal: %v, want %v", fatal, gone)
	}
}
