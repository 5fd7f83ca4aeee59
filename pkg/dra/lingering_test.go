package dra_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
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
		for range 7 {
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
	n.publisher.Existing = func(context.Context) ([]publish.Allocated, error) {
		if away != nil {
			return nil, away
		}
		var all []publish.Allocated
		for _, a := range published.Devices {
			all = append(all, publish.Allocated{Pool: "worker-1", Name: "gpu-" + a.Label()})
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
