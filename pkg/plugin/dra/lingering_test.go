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
)

// TestADeviceStaysWhileAClaimMayBeOnItsWay: the scheduler has allocated it, and the node does not know yet.
func TestADeviceStaysWhileAClaimMayBeOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, r := newNode(t), &recorder{}
		n.k.AddGPU(0x3b)
		gone := n.k.AddGPU(0x3c)
		n.publish(r)
		n.k.Remove(gone)
		for range 14 {
			time.Sleep(time.Minute)
			n.publish(r)
		}
		want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {"withdrawn"}}
		if diff := cmp.Diff(want, r.devices()); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		n.publish(r)
		delete(want, "gpu-0000-3c-00-0")
		if diff := cmp.Diff(want, r.devices()); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
	})
}

// TestAnAllocatedDeviceStaysWhileItsAllocationStands: it has left the bus, so that its claim can't be prepared, and the kubelet
// has stopped asking. Only the API server's word ends that.
func TestAnAllocatedDeviceStaysWhileItsAllocationStands(t *testing.T) {
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
				n, r := newNode(t), &recorder{}
				n.k.AddGPU(0x3b)
				gone := n.k.AddGPU(0x3c)
				c := allocated("uid-1", "gpu-0000-3c-00-0")
				server := newAwayServer(c)
				n.publisher.Asked = &dra.Asked{Client: server}
				n.publish(r)
				n.k.Remove(gone)
				n.publisher.Asked.Note(c)
				hours := func(devices map[string][]string) {
					t.Helper()
					for range 2 * 60 {
						time.Sleep(time.Minute)
						n.publish(r)
					}
					if diff := cmp.Diff(devices, r.devices()); diff != "" {
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

// TestAClaimThatIsNotPreparedIsRememberedByTheDriver until the kubelet gives it up.
func TestAClaimThatIsNotPreparedIsRememberedByTheDriver(t *testing.T) {
	n := newNode(t)
	gone := n.k.AddGPU(0x3c)
	c := allocated("uid-1", "gpu-0000-3c-00-0")
	n.publish(&recorder{})
	n.k.Remove(gone)
	k := serve(t, n, n.claims, "", c)
	device := publish.Allocated{Pool: "worker-1", Name: "gpu-0000-3c-00-0"}
	if answer := k.prepare(c)["uid-1"]; answer.Error == "" || !k.asked.Allocated(t.Context(), device) {
		t.Errorf("Prepare = %v; want an error, and the claim remembered", answer)
	}
	if answer := k.unprepare(c)["uid-1"]; answer.Error != "" || k.asked.Allocated(t.Context(), device) {
		t.Errorf("Unprepare = %v; want the claim forgotten", answer)
	}
}

// TestARestartDropsNoDevice: what the last instance has published may be allocated. While the API server does not say what that is, nothing is published.
func TestARestartDropsNoDevice(t *testing.T) {
	n, r := newNode(t), &recorder{}
	n.k.AddGPU(0x3b)
	gone := n.k.AddGPU(0x3c)
	n.publish(r)
	published := n.publisher.Published()
	n.k.Remove(gone)
	away := errors.New("connection refused")
	n.publisher = dra.NewPublisher("worker-1", n.claims.PlanNode, n.records.List, n.health, n.metrics)
	n.publisher.Existing = func(context.Context) (dra.Consumed, error) {
		if away != nil {
			return nil, away
		}
		all := dra.Consumed{}
		for _, a := range published.Devices {
			all[publish.Allocated{Pool: "worker-1", Name: "gpu-" + a.Label()}] = nil
		}
		return all, nil
	}
	before := len(r.published)
	if err := n.publisher.Publish(t.Context(), r, n.snapshot()); !errors.Is(err, away) || len(r.published) != before {
		t.Errorf("Publish = %v, published %d times more", err, len(r.published)-before)
	}
	away = nil
	n.publish(r)
	want := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {"withdrawn"}}
	if diff := cmp.Diff(want, r.devices()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
