package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
)

// candidate is a controller that takes part in the election.
type candidate struct {
	stop  context.CancelFunc
	ended chan error
}

// elects starts a candidate. before is as in apiServer.client.
func elects(t *testing.T, s *apiServer, identity string, before func(clienttesting.Action) error) *candidate {
	t.Helper()
	return electsWith(t, s, identity, Config{Drivers: []string{otherDriver}}, before)
}

// electsWith is the same with the tasks of a Config.
func electsWith(t *testing.T, s *apiServer, identity string, config Config, before func(clienttesting.Action) error) *candidate {
	t.Helper()
	client, metrics := s.client(before), NewMetrics()
	config.Client, config.Recorder, config.Metrics, config.Log, config.Now = client, events.NewFakeRecorder(100), metrics, slog.New(slog.DiscardHandler), time.Now
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	one, watching := &candidate{stop: cancel, ended: make(chan error, 1)}, make(chan struct{})
	go func() { defer close(watching); c.Watch(ctx) }()
	go func() {
		one.ended <- (&Daemon{Namespace: "kata-vfio-system", Identity: identity}).elect(ctx, client, c, metrics)
	}()
	t.Cleanup(func() { cancel(); <-watching })
	return one
}

func TestAnotherLeadsAtOnceAfterALeaderEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		first := elects(t, s, "first", nil)
		after(soon)
		second := elects(t, s, "second", nil)
		s.allocateOurs("vm")
		after(soon)
		if got := s.leaseHolder(); got != "first" {
			t.Errorf("the leader is %q", got)
		}
		wantRules(t, s, "of the first", map[string]string{"gpu-0": "Ours"})
		first.stop()
		if err := <-first.ended; err != nil {
			t.Errorf("the first ended: %v", err)
		}
		after(5 * time.Second)
		if got := s.leaseHolder(); got != "second" {
			t.Errorf("after the first, the leader is %q", got)
		}
		after(4 * time.Second)
		wantAnswer(t, s, "of the second", "vm", "TwinReserved=True")
		second.stop()
		<-second.ended
	})
}

func TestLeaderEndsBeforeAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, down := shared(t), &atomic.Bool{}
		first := elects(t, s, "first", func(a clienttesting.Action) error {
			if down.Load() && a.GetResource().Resource == "leases" {
				return errors.New("down")
			}
			return nil
		})
		after(soon)
		second := elects(t, s, "second", nil)
		after(soon)
		down.Store(true)
		if err := <-first.ended; !errors.Is(err, errLeaseLost) {
			t.Errorf("the first ended: %v", err)
		}
		if got := s.leaseHolder(); got != "first" {
			t.Errorf("when the first ends, the leader is %q", got)
		}
		after(20 * time.Second)
		if got := s.leaseHolder(); got != "second" {
			t.Errorf("after the lease, the leader is %q", got)
		}
		second.stop()
		<-second.ended
	})
}

// TestServerWithoutRules is refused if GPUs are shared. For counts, the rules are left out, and nothing else asks for them.
func TestServerWithoutRules(t *testing.T) {
	shares, counts, neither := &Daemon{Drivers: []string{otherDriver}}, &Daemon{CountGPUs: true}, &Daemon{Tenants: true}
	for name, tt := range map[string]struct {
		daemon          *Daemon
		group, resource string
		want            bool
		wrong           string
	}{
		"shared GPUs, with rules":     {daemon: shares, group: "resource.k8s.io/v1", resource: "devicetaintrules", want: true},
		"shared GPUs, without rules":  {daemon: shares, group: "resource.k8s.io/v1", resource: "resourceclaims", wrong: "needs Kubernetes 1.37 or newer"},
		"shared GPUs, without answer": {daemon: shares, group: "resource.k8s.io/v1beta1", wrong: "ask the API server for its resources"},
		"counts, with rules":          {daemon: counts, group: "resource.k8s.io/v1", resource: "devicetaintrules", want: true},
		"a view, with rules":          {daemon: &Daemon{Classes: true}, group: "resource.k8s.io/v1", resource: "devicetaintrules", want: true},
		"counts, without rules":       {daemon: counts, group: "resource.k8s.io/v1", resource: "resourceclaims"},
		"counts, without answer":      {daemon: counts, group: "resource.k8s.io/v1beta1", wrong: "ask the API server for its resources"},
		"no use, without answer":      {daemon: neither, group: "resource.k8s.io/v1beta1"},
	} {
		d := &discovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
		d.Resources = []*metav1.APIResourceList{{GroupVersion: tt.group, APIResources: []metav1.APIResource{{Name: tt.resource}}}}
		got, err := tt.daemon.taintRules(d)
		if got != tt.want || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: got %t and %v, want %t and %q", name, got, err, tt.want, tt.wrong)
		}
	}
}
