package controller

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// never is an API server that takes requests and gives no answer.
type never struct{}

func (never) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRequestsEndInTime: one goroutine decides about all nodes, and keeps the lease while it waits.
func TestRequestsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://api.example.com", Transport: never{}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{
			Client: client, Drivers: []string{otherDriver}, Recorder: events.NewFakeRecorder(1), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.queue.ShutDown()
		// Longer than any request may take, so that a request without a limit fails the test instead of hanging it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := c.fresh(ctx); err == nil || time.Since(start) != listLimit {
			t.Errorf("a list ends after %s with %v", time.Since(start), err)
		}
		start = time.Now()
		if c.execute(ctx, c.empty(), &twin.GPU{PCI: "a/0000:3b:00.0"}, []twin.Action{twin.DeleteRule{Rule: twin.Rule{Name: "r", UID: "u", ResourceVersion: "1"}}}) || time.Since(start) != writeLimit {
			t.Errorf("a write ends after %s", time.Since(start))
		}
	})
}

// TestOneNodeIsNotTheCluster: a decision about one node takes the objects of the node out of the caches, and no others.
func TestOneNodeIsNotTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		c := lead(t, s, nil)
		for _, name := range []string{"n-1", "n-2", "n-3"} {
			elsewhere := sliceOf(name, otherDriver, name, deviceAt("gpu-0", "0000:3b:00.0"))
			elsewhere.Spec.NodeName = &name
			s.put("resourceslices", elsewhere)
		}
		s.allocateOurs("vm")
		s.allocate("elsewhere", "third.example.com", "n-1", "x")
		after(soon)
		on, whole := c.informers.cached().on(c.Controller, nodeA), c.informers.cached().whole(c.Controller)
		near, all := on.Cluster.Devices(), whole.Cluster.Devices()
		for _, d := range near {
			if d.Node != nodeA {
				t.Errorf("a device of %s is among those of the node", d.Node)
			}
		}
		if len(near) == 0 || len(on.Cluster.Claims()) != 1 || len(on.Rules) != 1 {
			t.Errorf("the node has %d devices, %d claims and %d rules", len(near), len(on.Cluster.Claims()), len(on.Rules))
		}
		if len(whole.Cluster.Claims()) != 2 || len(all) <= len(near) {
			t.Errorf("the cluster has %d devices and %d claims", len(all), len(whole.Cluster.Claims()))
		}
	})
}
