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
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
)

func itoa(n int) string { return strconv.Itoa(n) }

// recorder keeps what was published.
type recorder struct {
	published []resourceslice.DriverResources
	err       error
}

func (r *recorder) PublishResources(_ context.Context, res resourceslice.DriverResources) error {
	if r.err == nil {
		r.published = append(r.published, res)
	}
	return r.err
}

// devices returns the names of the devices published last, each with its taints.
func (r *recorder) devices() map[string][]string {
	all := map[string][]string{}
	for _, pool := range r.published[len(r.published)-1].Pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				taints := []string{}
				for _, t := range d.Taints {
					taints = append(taints, strings.TrimPrefix(t.Key, "kata-vfio.dev/"))
				}
				all[d.Name] = taints
			}
		}
	}
	return all
}

func (n *node) publish(r *recorder) {
	n.t.Helper()
	if err := n.publisher.Publish(n.t.Context(), r, n.snapshot()); err != nil {
		n.t.Fatal(err)
	}
}

// prepared prepares a claim for the device, past the kubelet.
func (n *node) prepared(uid, name string) {
	n.t.Helper()
	req, err := claim.Decode(allocated(uid, name), "kata-vfio.dev")
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.claims.Prepare(n.t.Context(), req); err != nil {
		n.t.Fatal(err)
	}
}

// TestPublishOnChangeOnly: a generation bump blocks a whole pool for the
// scheduler, so what is the same is not published again.
func TestPublishOnChangeOnly(t *testing.T) {
	n, r := newNode(t), &recorder{}
	n.k.AddGPU(0x3b)
	n.publish(r)
	n.publish(r)
	if len(r.published) != 1 {
		t.Fatalf("published %d times, want once", len(r.published))
	}
	n.k.AddGPU(0x3c)
	n.publish(r)
	if len(r.published) != 2 {
		t.Fatalf("published %d times, want a second time for the new GPU", len(r.published))
	}
	want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {}}
	if diff := cmp.Diff(want, r.devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestPublishAgainAfterAnError: what was not handed over is not done.
func TestPublishAgainAfterAnError(t *testing.T) {
	n, r := newNode(t), &recorder{err: errors.New("no node name")}
	n.k.AddGPU(0x3b)
	if err := n.publisher.Publish(t.Context(), r, n.snapshot()); !errors.Is(err, r.err) {
		t.Errorf("got %v, want %v", err, r.err)
	}
	r.err = nil
	n.publish(r)
	if len(r.published) != 1 {
		t.Errorf("published %d times, want once", len(r.published))
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
	n, w := newNode(t), waiting{make(chan struct{}), make(chan struct{})}
	n.k.AddGPU(0x3b)
	snap, published := n.snapshot(), make(chan error)
	go func() { published <- n.publisher.Publish(t.Context(), w, snap) }()
	<-w.entered
	if n.publisher.Attributes("gpu-0000-3b-00-0") == nil {
		t.Error("no attributes")
	}
	if n.health.Ready() == "" {
		t.Error("ready though nothing is published")
	}
	close(w.leave)
	if err := <-published; err != nil || n.health.Ready() != "" {
		t.Errorf("published: %v, ready: %q", err, n.health.Ready())
	}
}

// TestEmptyNodePublishesAPool: no slices at all would leave the old ones of an
// earlier plugin in place.
func TestEmptyNodePublishesAPool(t *testing.T) {
	n, r := newNode(t), &recorder{}
	n.publish(r)
	if len(r.published) != 1 || len(r.published[0].Pools) == 0 || len(r.devices()) != 0 {
		t.Errorf("published %+v, want one pool without devices", r.published)
	}
}

// TestPreparedDeviceStaysPublished, with the name and pool that it was
// allocated by, though its function is on another driver, or gone.
func TestPreparedDeviceStaysPublished(t *testing.T) {
	n, r := newNode(t), &recorder{}
	gpu := n.k.AddGPU(0x3b)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	n.publish(r)
	if taints, ok := r.devices()["gpu-0000-3b-00-0"]; !ok || len(taints) > 0 {
		t.Errorf("devices %v, want the GPU without taints", r.devices())
	}
	n.k.Remove(gpu)
	n.publish(r)
	if taints := r.devices()["gpu-0000-3b-00-0"]; len(taints) == 0 {
		t.Errorf("devices %v, want the GPU that is gone tainted", r.devices())
	}
}

// TestQuarantineIsATaint, for as long as it lasts, and the device is unhealthy.
func TestQuarantineIsATaint(t *testing.T) {
	n, r := newNode(t), &recorder{}
	gpu := n.k.AddGPU(0x3b)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	whole, err := n.fs.ConfigSpace(gpu)
	if err != nil {
		t.Fatal(err)
	}
	n.k.SetConfig(gpu, 0x10, 0xde, 0xad)
	n.k.OnReset(gpu, ignored)
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err == nil {
		t.Fatal("no quarantine")
	}
	n.publish(r)
	if diff := cmp.Diff(map[string][]string{"gpu-0000-3b-00-0": {"quarantined"}}, r.devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	n.k.SetConfig(gpu, 0, whole...)
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	n.publish(r)
	if diff := cmp.Diff(map[string][]string{"gpu-0000-3b-00-0": {}}, r.devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestAttributes: containers are told what the ResourceSlice says.
func TestAttributes(t *testing.T) {
	n, r := newNode(t), &recorder{}
	n.k.AddGPU(0x3b)
	if got := n.publisher.Attributes("gpu-0000-3b-00-0"); got != nil {
		t.Errorf("attributes %v before anything was published", got)
	}
	n.publish(r)
	got := n.publisher.Attributes("gpu-0000-3b-00-0")["resource.kubernetes.io/pciBusID"]
	if got.StringValue == nil || *got.StringValue != "0000:3b:00.0" {
		t.Errorf("pciBusID %v", got)
	}
	if got := n.publisher.Attributes("gpu-0000-ee-00-0"); got != nil {
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
	return &resourceslice.DroppedFieldsError{PoolName: "worker-1", DesiredSlice: slice(true), ActualSlice: slice(false)}
}

// TestDroppedFieldsWithdrawEverything: without counters two tenants could get
// one piece of hardware. Nothing is offered any more, and the plugin is not
// ready; claims that are allocated go on.
func TestDroppedFieldsWithdrawEverything(t *testing.T) {
	n, r := newNode(t), &recorder{}
	n.k.AddGPU(0x3b)
	n.publish(r)
	woken := 0
	d := dra.NewPlugin(dra.PluginConfig{
		Health: n.health, Metrics: n.metrics, Log: quiet(), Changed: func() { woken++ }, Fatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	d.HandleError(t.Context(), fmt.Errorf("sync: %w", dropped()), "publishing")
	if woken != 1 {
		t.Errorf("the publisher was woken %d times", woken)
	}
	n.publish(r)
	if len(r.devices()) != 0 || len(r.published[1].Pools["worker-1"].Slices) != 1 {
		t.Errorf("published %+v, want one empty slice", r.published[1])
	}
	ready := n.health.Ready()
	for _, word := range []string{"DRAPartitionableDevices", "restart the plugin", "no device is published"} {
		if !strings.Contains(ready, word) {
			t.Errorf("readiness %q does not say %q", ready, word)
		}
	}
	if n.publisher.Attributes("gpu-0000-3b-00-0") == nil {
		t.Error("a claim that is allocated would lose its device's metadata")
	}
}

// TestHandleError: what the helper retries is logged; what it can't recover
// from ends the plugin.
func TestHandleError(t *testing.T) {
	n := newNode(t)
	var fatal error
	d := dra.NewPlugin(dra.PluginConfig{Health: n.health, Metrics: n.metrics, Log: quiet(), Changed: func() {}, Fatal: func(err error) { fatal = err }})
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
