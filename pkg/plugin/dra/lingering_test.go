package dra_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestDeviceStaysWhileAClaimMayBeOnItsWay: the scheduler has allocated it, and the node does not know yet.
func TestDeviceStaysWhileAClaimMayBeOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, r := plugintest.New(t), &plugintest.Recorder{}
		n.Kernel.AddGPU(0x3b)
		gone := n.Kernel.AddGPU(0x3c)
		n.Publish(r)
		n.Kernel.Remove(gone)
		for range 14 {
			time.Sleep(time.Minute)
			n.Publish(r)
		}
		want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {"withdrawn"}}
		if diff := cmp.Diff(want, r.Devices()); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		n.Publish(r)
		delete(want, "gpu-0000-3c-00-0")
		if diff := cmp.Diff(want, r.Devices()); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
	})
}

// TestAllocatedDeviceStaysWhileItsAllocationStands: it has left the bus, so that its claim can't be prepared, and the plugintest.Kubelet
// has stopped asking. Only the API server's word ends that.
func TestAllocatedDeviceStaysWhileItsAllocationStands(t *testing.T) {
	for name, end := range map[string]func(s *awayServer, c *resourceapi.ResourceClaim) error{
		"its claim is deleted": func(s *awayServer, c *resourceapi.ResourceClaim) error {
			return s.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), c.Namespace, c.Name)
		},
		"its allocation is withdrawn": func(s *awayServer, c *resourceapi.ResourceClaim) error {
			c = c.DeepCopy()
			c.Status.Allocation = nil
			return s.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), c, c.Namespace)
		},
		"its claim was replaced": func(s *awayServer, c *resourceapi.ResourceClaim) error {
			c = c.DeepCopy()
			c.UID = "uid-2"
			return s.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), c, c.Namespace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, r := plugintest.New(t), &plugintest.Recorder{}
				n.Kernel.AddGPU(0x3b)
				gone := n.Kernel.AddGPU(0x3c)
				c := plugintest.Allocated("uid-1", "gpu-0000-3c-00-0")
				server := newAwayServer(c)
				n.Publisher.Asked = &dra.Asked{Client: server}
				n.Publish(r)
				n.Kernel.Remove(gone)
				n.Publisher.Asked.Note(c)
				hours := func(devices map[string][]string) {
					t.Helper()
					for range 2 * 60 {
						time.Sleep(time.Minute)
						n.Publish(r)
					}
					if diff := cmp.Diff(devices, r.Devices()); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
				want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {"withdrawn"}}
				hours(want)
				server.away = true
				hours(want)
				if err := end(server, c); err != nil {
					t.Fatal(err)
				}
				hours(want)
				server.away = false
				delete(want, "gpu-0000-3c-00-0")
				hours(want)
			})
		})
	}
}

// TestClaimThatIsNotPreparedIsRememberedByTheDriver until the kubelet gives it up.
func TestClaimThatIsNotPreparedIsRememberedByTheDriver(t *testing.T) {
	n := plugintest.New(t)
	gone := n.Kernel.AddGPU(0x3c)
	c := plugintest.Allocated("uid-1", "gpu-0000-3c-00-0")
	n.Publish(&plugintest.Recorder{})
	n.Kernel.Remove(gone)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	device := publish.Allocated{Pool: "worker-1", Name: "gpu-0000-3c-00-0"}
	if answer := k.Prepare(c)["uid-1"]; answer.Error == "" || !k.Asked.Allocated(t.Context(), device) {
		t.Errorf("Prepare = %v; want an error, and the claim remembered", answer)
	}
	if answer := k.Unprepare(c)["uid-1"]; answer.Error != "" || k.Asked.Allocated(t.Context(), device) {
		t.Errorf("Unprepare = %v; want the claim forgotten", answer)
	}
}

// TestRestartDropsNoDevice: what the last instance has published may be allocated. While the API server does not say what that is, nothing is published.
func TestRestartDropsNoDevice(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	n.Kernel.AddGPU(0x3b)
	gone := n.Kernel.AddGPU(0x3c)
	n.Publish(r)
	published := n.Publisher.Published()
	n.Kernel.Remove(gone)
	away := errors.New("connection refused")
	n.Publisher = dra.NewPublisher(dra.PublisherConfig{Node: "worker-1", Planned: n.Claims.PlanNode, Records: n.Records.List, Health: n.Health, Metrics: n.Metrics})
	n.Publisher.Existing = func(context.Context) (dra.Consumed, error) {
		if away != nil {
			return nil, away
		}
		all := dra.Consumed{}
		for _, a := range published.Devices {
			all[publish.Allocated{Pool: "worker-1", Name: "gpu-" + a.Label()}] = nil
		}
		return all, nil
	}
	before := len(r.Published)
	if err := n.Publisher.Publish(t.Context(), r, n.Snapshot()); !errors.Is(err, away) || len(r.Published) != before {
		t.Errorf("Publish = %v, published %d times more", err, len(r.Published)-before)
	}
	away = nil
	n.Publish(r)
	want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {"withdrawn"}}
	if diff := cmp.Diff(want, r.Devices()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
