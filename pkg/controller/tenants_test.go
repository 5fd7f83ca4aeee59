package controller

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

const tenantsNamespace = "kata-vfio-system"

// createNamespace creates a namespace, "a" or "a/red" with a value of the label, or changes its label.
func (s *apiServer) createNamespace(text string) {
	s.t.Helper()
	name, value, labeled := strings.Cut(text, "/")
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if labeled {
		n.Labels = map[string]string{tenancyLabel: value}
	}
	s.put("namespaces", n)
}

// removeFrom deletes an object, as a user does.
func (s *apiServer) removeFrom(in, namespace, name string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, err := s.tracker.Get(resource(in), namespace, name)
	if err == nil {
		err = s.tracker.Delete(resource(in), namespace, name)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.deleted[in] = append(s.deleted[in], gone)
}

func (s *apiServer) deleteNamespace(name string) { s.removeFrom("namespaces", "", name) }

// tenantIDs returns the IDs by namespace; nil if there is no ConfigMap.
func (s *apiServer) tenantIDs() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.Get(resource("configmaps"), tenantsNamespace, v1alpha1.TenantsConfigMap)
	if err != nil {
		return nil
	}
	ids := map[string]string{}
	for key, id := range o.(*corev1.ConfigMap).Data {
		if name, ok := strings.CutPrefix(key, v1alpha1.TenantKey("")); ok {
			ids[name] = id
		}
	}
	return ids
}

// wantTenants checks that the namespaces of each group, and no others, have an ID of the group's own, and returns the IDs.
func wantTenants(t *testing.T, s *apiServer, when string, groups ...string) map[string]string {
	t.Helper()
	ids, owners, named := s.tenantIDs(), map[string]string{}, 0
	for _, group := range groups {
		for name := range strings.FieldsSeq(group) {
			named++
			id := ids[name]
			if !v1alpha1.IsTenantID(id) || owners[id] != "" && owners[id] != group {
				t.Errorf("%s, namespace %s of %q has the ID %q in %v", when, name, group, id, ids)
			}
			owners[id] = group
		}
	}
	if len(owners) != len(groups) || len(ids) != named {
		t.Errorf("%s, the IDs are %v, want those of %q", when, ids, groups)
	}
	return ids
}

// registers starts a controller that registers tenants and does nothing else.
func registers(t *testing.T, s *apiServer, label string, before func(clienttesting.Action) error) *running {
	t.Helper()
	return leadWith(t, s, Config{Tenancy: &Tenancy{Namespace: tenantsNamespace, Label: label}}, func(a clienttesting.Action) error {
		if group := a.GetResource().Group; group != "" {
			t.Errorf("it has no right to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
		if before == nil {
			return nil
		}
		return before(a)
	})
}

func TestTenantsAreRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		c := registers(t, s, "", nil)
		after(soon)
		first := wantTenants(t, s, "at first", "a")
		s.createNamespace("b")
		after(soon)
		second := wantTenants(t, s, "with another", "a", "b")
		s.deleteNamespace("b")
		after(soon)
		third := wantTenants(t, s, "after the other", "a")
		s.createNamespace("b")
		after(soon)
		fourth := wantTenants(t, s, "with another of its name", "a", "b")
		if first["a"] != second["a"] || second["a"] != third["a"] || third["a"] != fourth["a"] || second["b"] == fourth["b"] {
			t.Errorf("the IDs were %v, %v, %v, %v", first, second, third, fourth)
		}
		want := map[string]float64{
			"kata_vfio_twin_leader": 0, "kata_vfio_twin_reserve_seconds": 0,
			"kata_vfio_tenants_registered": 2, "kata_vfio_tenants_without_room": 0, "kata_vfio_tenants_replaced_total": 0,
		}
		if diff := cmp.Diff(want, metricsOf(t, c)); diff != "" {
			t.Errorf("the metrics differ (-want +got):\n%s", diff)
		}
		if got := c.NotReady(); got != "" {
			t.Errorf("not ready: %q", got)
		}
	})
}

func TestTenantsByLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for _, n := range []string{"a/red", "b/red", "c/blue", "d", "e/"} {
			s.createNamespace(n)
		}
		registers(t, s, tenancyLabel, nil)
		after(soon)
		before := wantTenants(t, s, "at first", "a b", "c", "d", "e")
		s.createNamespace("b/blue")
		after(soon)
		if got := wantTenants(t, s, "with another label", "a", "b c", "d", "e"); got["a"] != before["a"] || got["c"] != before["c"] {
			t.Errorf("the IDs were %v, and are %v", before, got)
		}
	})
}

// A namespace that was deleted and created again while no controller ran is another tenant.
func TestNamespaceCreatedAgainMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		s.createNamespace("b")
		c := registers(t, s, "", nil)
		after(soon)
		before := wantTenants(t, s, "at first", "a", "b")
		c.stop()
		s.deleteNamespace("a")
		s.createNamespace("a")
		registers(t, s, "", nil)
		after(soon)
		if got := wantTenants(t, s, "of the next controller", "a", "b"); got["a"] == before["a"] || got["b"] != before["b"] {
			t.Errorf("the IDs were %v, and are %v", before, got)
		}
	})
}

func TestTenantsConfigMapChangedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		s.createNamespace("b")
		c := registers(t, s, "", nil)
		after(soon)
		before := wantTenants(t, s, "at first", "a", "b")
		s.mu.Lock()
		o, err := s.tracker.Get(resource("configmaps"), tenantsNamespace, v1alpha1.TenantsConfigMap)
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		changed := o.(*corev1.ConfigMap).DeepCopy()
		changed.Data[v1alpha1.TenantKey("a")] = "mine"
		s.put("configmaps", changed)
		after(recheck)
		got := wantTenants(t, s, "after a change", "a", "b")
		if got["a"] == before["a"] || got["b"] != before["b"] || metricsOf(t, c)["kata_vfio_tenants_replaced_total"] != 1 {
			t.Errorf("the IDs were %v, and are %v: %v", before, got, metricsOf(t, c))
		}
		s.removeFrom("configmaps", tenantsNamespace, v1alpha1.TenantsConfigMap)
		after(recheck + soon)
		if last := wantTenants(t, s, "after it was deleted", "a", "b"); last["a"] == got["a"] || last["b"] == got["b"] {
			t.Errorf("the IDs were %v, and are %v", got, last)
		}
	})
}

func TestTenantsAreDecidedAgainAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		var writes atomic.Int32
		c := registers(t, s, "", func(a clienttesting.Action) error {
			if a.GetVerb() != "update" || writes.Add(1) > 1 {
				return nil
			}
			// Another replica is faster.
			other := a.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap).DeepCopy()
			other.Data = data("a#uid-1=7")
			s.put("configmaps", other)
			return nil
		})
		after(soon)
		if got := wantTenants(t, s, "after the conflict", "a"); got["a"] != testID(7) || writes.Load() != 1 {
			t.Errorf("after %d writes, the IDs are %v", writes.Load(), got)
		}
		if got := metricsOf(t, c)["kata_vfio_tenants_conflicts_total update"]; got != 1 {
			t.Errorf("%v conflicts were counted", got)
		}
	})
}

// The caches of a former leader do not decide: here the informer does not see that a namespace is another one.
func TestTenantsAreDecidedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		var updates atomic.Int32
		c := registers(t, s, "", func(a clienttesting.Action) error {
			if a.GetVerb() == "update" {
				updates.Add(1)
			}
			return nil
		})
		after(soon)
		stale, _, err := c.informers.namespaces.GetIndexer().GetByKey("a")
		if err != nil {
			t.Fatal(err)
		}
		s.deleteNamespace("a")
		s.createNamespace("a")
		after(soon)
		want := wantTenants(t, s, "with the other", "a")
		if err := c.informers.namespaces.GetIndexer().Update(stale); err != nil {
			t.Fatal(err)
		}
		after(10 * recheck)
		if got := wantTenants(t, s, "with an old cache", "a"); got["a"] != want["a"] || updates.Load() != 2 {
			t.Errorf("after %d writes, the IDs were %v, and are %v", updates.Load(), want, got)
		}
	})
}

func TestTenantsWhileTheAPIServerIsAway(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		synctest.Test(t, func(t *testing.T) {
			s, away := newAPIServer(t), &atomic.Bool{}
			away.Store(true)
			s.createNamespace("a")
			c := registers(t, s, "", func(a clienttesting.Action) error {
				if away.Load() && a.GetVerb() == verb {
					return errors.New("connection refused")
				}
				return nil
			})
			after(time.Minute)
			if ids := s.tenantIDs(); len(ids) > 0 {
				t.Errorf("without %s, the IDs are %v", verb, ids)
			}
			if got := metricsOf(t, c)["kata_vfio_tenants_failures_total "+verb]; got < 5 {
				t.Errorf("%v failures of %s were counted", got, verb)
			}
			away.Store(false)
			after(time.Minute)
			wantTenants(t, s, "with "+verb+" again", "a")
		})
	}
}

// Of two replicas, the leader alone writes. The other one goes on with the leader's IDs.
func TestOnlyTheLeaderRegistersTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.createNamespace("a")
		var requests atomic.Int32
		config := Config{Tenancy: &Tenancy{Namespace: tenantsNamespace}}
		first := electsWith(t, s, "first", config, nil)
		after(soon)
		second := electsWith(t, s, "second", config, func(a clienttesting.Action) error {
			if a.GetResource().Resource == "configmaps" {
				requests.Add(1)
			}
			return nil
		})
		s.createNamespace("b")
		after(5 * recheck)
		before := wantTenants(t, s, "of the first", "a", "b")
		if requests.Load() != 0 {
			t.Errorf("without the lease, the second sent %d requests", requests.Load())
		}
		first.stop()
		<-first.ended
		s.createNamespace("c")
		after(5 * time.Second)
		if got := wantTenants(t, s, "of the second", "a", "b", "c"); got["a"] != before["a"] || got["b"] != before["b"] {
			t.Errorf("the IDs were %v, and are %v", before, got)
		}
		second.stop()
		<-second.ended
	})
}

// Tenants are registered beside shared GPUs and sanitizing stages.
func TestTenantsBesideOtherTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		s.createNamespace("team-a")
		leadWith(t, s, Config{Drivers: []string{otherDriver}, Sanitizers: sanitizing(), Tenancy: &Tenancy{Namespace: tenantsNamespace}}, nil)
		s.waits("01")
		s.allocateOurs("vm")
		after(soon)
		wantTenants(t, s, "beside others", "team-a")
		wantStages(t, s, "beside tenants", "pod 01", "claim 01")
		wantRules(t, s, "beside tenants", map[string]string{"gpu-0": "Ours"})
	})
}

// TestTenantsWithoutRoom: the metric and the IDs of the others show what the ConfigMap has no room for.
func TestTenantsWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		for i := range 8000 {
			s.createNamespace(fmt.Sprintf("%063d", i))
		}
		c := registers(t, s, "", nil)
		after(5 * soon)
		registered, left := metricsOf(t, c)["kata_vfio_tenants_registered"], metricsOf(t, c)["kata_vfio_tenants_without_room"]
		if left == 0 || registered+left != 8000 || float64(len(s.tenantIDs())) != registered {
			t.Errorf("of 8000 namespaces, %v are registered, and there is no room for %v", registered, left)
		}
	})
}
