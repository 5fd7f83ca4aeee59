package dra_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// never is an API server that accepts requests and does not answer. It counts them.
type never struct{ asked atomic.Int32 }

func (n *never) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// client returns a client of the server.
func (n *never) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://api.example.com", Transport: n, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestRequestsEndInTime: the API server may accept connections and never answer.
func TestRequestsEndInTime(t *testing.T) {
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	ref := plan.Ref{UID: "uid-1", Namespace: c.Namespace, Name: c.Name}
	requests := map[string]time.Duration{"SeenLost": 2} // it asks the watch cache first
	for name, ask := range map[string]func(context.Context, *plugintest.Node, kubernetes.Interface) error{
		"Lost": func(ctx context.Context, n *plugintest.Node, client kubernetes.Interface) error {
			rec, err := n.Records.Load("uid-1")
			if err != nil {
				return nil
			}
			_, err = (&dra.Allocations{Client: client, Node: "worker-1"}).Lost(ctx, rec)
			return err
		},
		"SeenLost": func(ctx context.Context, n *plugintest.Node, client kubernetes.Interface) error {
			rec, err := n.Records.Load("uid-1")
			if err != nil {
				return nil
			}
			_, err = (&dra.Allocations{Client: client, Node: "worker-1"}).SeenLost(ctx, rec)
			return err
		},
		"StatusSync": func(ctx context.Context, n *plugintest.Node, client kubernetes.Interface) error {
			r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
			go func() { _ = r.Run(ctx) }() // it has no error to return
			(&dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes}).Look(ctx)
			return errors.New("it can't be read")
		},
		"Reserve": func(ctx context.Context, _ *plugintest.Node, client kubernetes.Interface) error {
			return dra.NewPlugin(dra.PluginConfig{Client: client}).Reserve(ctx, ref)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := plugintest.New(t)
				n.Kernel.AddGPU(0x3b)
				n.Prepare("uid-1", "gpu-0000-3b-00-0")
				// Longer than any request may take, so that a request without a limit fails the test instead of hanging it.
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start, limit := time.Now(), max(requests[name], 1)*dra.RequestLimit
				if err := ask(ctx, n, (&never{}).client(t)); err == nil || time.Since(start) != limit {
					t.Errorf("ends after %s with %v, want %s", time.Since(start), err, limit)
				}
			})
		})
	}
}

// TestReportsAreTriedAgainWithoutAnAnswer: one goroutine writes the statuses of all claims.
func TestReportsAreTriedAgainWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &never{}
		r := dra.NewReporter(dra.ReporterConfig{Client: server.client(t), Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		for _, uid := range []string{"uid-1", "uid-2"} {
			r.Refused(plugintest.Allocated(uid, "gpu-0000-3b-00-0"), errors.New("a device is in use"), nil)
		}
		time.Sleep(3*dra.RequestLimit + time.Second)
		if asked := server.asked.Load(); asked < 3 {
			t.Errorf("%d requests, want at least three", asked)
		}
	})
}
