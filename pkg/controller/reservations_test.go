package controller

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// domainServer is an API server with two GPUs of one exclusive domain, and tenants' namespaces.
func domainServer(t *testing.T, namespaces ...string) *apiServer {
	s := newAPIServer(t)
	s.put("resourceslices", sliceOf("gpus", v1alpha1.DriverName, gpuPool, domainDevice("01", "Switch/x"), domainDevice("02", "Switch/x")))
	for _, n := range namespaces {
		s.createNamespace(n)
	}
	return s
}

// allocateDomain allocates a claim, "NAMESPACE/NAME SLOT...", as the scheduler does now.
func (s *apiServer) allocateDomain(text string) {
	c := domainClaim(text, 0)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	c.Status.Allocation.AllocationTimestamp = &now
	s.put("resourceclaims", c)
}

// domainAnswers returns the conditions of a claim's devices: "DomainReserved=True, DomainReserved=True".
func (s *apiServer) domainAnswers(namespace, name string) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.Get(resource("resourceclaims"), namespace, name)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, d := range o.(*resourceapi.ResourceClaim).Status.Devices {
		for _, c := range d.Conditions {
			all = append(all, strings.TrimPrefix(c.Type, v1alpha1.DriverName+"/")+"="+string(c.Status))
		}
	}
	return strings.Join(all, ", ")
}

func wantDomainAnswer(t *testing.T, s *apiServer, when, namespace, name, want string) {
	t.Helper()
	if got := s.domainAnswers(namespace, name); got != want {
		t.Errorf("%s, claim %s/%s has the answer %q, want %q", when, namespace, name, got, want)
	}
}

// reservesDomains starts a controller that registers tenants and reserves their domains.
func reservesDomains(t *testing.T, s *apiServer, before func(clienttesting.Action) error) *running {
	t.Helper()
	return leadWith(t, s, Config{Tenancy: &Tenancy{Namespace: tenantsNamespace, Reserve: true}}, before)
}

func TestDomainsAreReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := domainServer(t, "a", "b")
		c := reservesDomains(t, s, nil)
		after(soon)
		s.allocateDomain("a/first 01 02")
		after(soon)
		wantDomainAnswer(t, s, "alone", "a", "first", "DomainReserved=True, DomainReserved=True")
		if e := <-c.recorder.Events; !strings.HasPrefix(e, "Normal DomainFree ") {
			t.Errorf("got event %q, want DomainFree", e)
		}
		s.allocateDomain("b/second 02")
		after(soon)
		wantDomainAnswer(t, s, "after the other tenant", "b", "second", "DomainTaken=True")
		if e := <-c.recorder.Events; !strings.HasPrefix(e, "Warning DomainTaken ") {
			t.Errorf("got event %q, want DomainTaken", e)
		}
		s.removeFrom("resourceclaims", "a", "first")
		s.removeFrom("resourceclaims", "b", "second")
		s.allocateDomain("b/second 02")
		after(soon)
		wantDomainAnswer(t, s, "when the other tenant has left", "b", "second", "DomainReserved=True")
		if got := metricsOf(t, c); got["kata_vfio_domain_answers_total DomainFree"] != 2 || got["kata_vfio_domain_answers_total DomainTaken"] != 1 {
			t.Errorf("the metrics are %v, want two free domains and one taken", got)
		}
	})
}

// Claims that were allocated while no controller ran are answered by the next one.
func TestDomainsWaitForTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := domainServer(t, "a", "b")
		s.allocateDomain("a/first 01")
		after(time.Minute)
		s.allocateDomain("b/second 02")
		reservesDomains(t, s, nil)
		after(5 * soon)
		wantDomainAnswer(t, s, "at the start", "a", "first", "DomainReserved=True")
		wantDomainAnswer(t, s, "at the start", "b", "second", "DomainTaken=True")
	})
}

// A claim of a namespace that is not registered yet waits, and its status says for what.
func TestDomainsWaitForTheTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, noUpdates := domainServer(t), &atomic.Bool{}
		noUpdates.Store(true)
		reservesDomains(t, s, func(a clienttesting.Action) error {
			if noUpdates.Load() && a.GetVerb() == "update" && a.GetResource().Resource == "configmaps" {
				return errors.New("connection refused")
			}
			return nil
		})
		s.createNamespace("a")
		s.allocateDomain("a/first 01")
		after(10 * soon)
		wantDomainAnswer(t, s, "without a tenant ID", "a", "first", "DomainReserved=False")
		noUpdates.Store(false)
		after(time.Minute)
		wantDomainAnswer(t, s, "with the tenant's ID", "a", "first", "DomainReserved=True")
	})
}

// While the API server refuses requests, no claim is answered, and failures are counted.
func TestDomainsWhileTheAPIServerIsAway(t *testing.T) {
	for _, what := range []string{"list resourceclaims", "get configmaps", "patch resourceclaims"} {
		synctest.Test(t, func(t *testing.T) {
			s, away := domainServer(t, "a"), &atomic.Bool{}
			c := reservesDomains(t, s, func(a clienttesting.Action) error {
				if away.Load() && a.GetVerb()+" "+a.GetResource().Resource == what {
					return errors.New("connection refused")
				}
				return nil
			})
			after(soon)
			away.Store(true)
			s.allocateDomain("a/first 01")
			after(time.Minute)
			wantDomainAnswer(t, s, "without "+what, "a", "first", "")
			failed := 0.0
			for name, n := range metricsOf(t, c) {
				if strings.HasPrefix(name, "kata_vfio_domain_failures_total") {
					failed += n
				}
			}
			if failed < 5 {
				t.Errorf("%v failures of %s were counted, want 5 or more", failed, what)
			}
			away.Store(false)
			after(time.Minute)
			wantDomainAnswer(t, s, "with "+what+" again", "a", "first", "DomainReserved=True")
		})
	}
}

// A claim that can't be answered delays no later claim, and its domains stay taken for other tenants.
func TestClaimThatCannotBeAnsweredDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := domainServer(t, "a", "b")
		c := reservesDomains(t, s, func(a clienttesting.Action) error {
			if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "first" {
				return errors.New("field cannot be modified once set")
			}
			return nil
		})
		after(soon)
		s.allocateDomain("a/first 01")
		after(2 * soon)
		s.allocateDomain("a/second 02")
		s.allocateDomain("b/third 02")
		after(time.Minute)
		wantDomainAnswer(t, s, "with an error", "a", "first", "")
		wantDomainAnswer(t, s, "of the same tenant", "a", "second", "DomainReserved=True")
		wantDomainAnswer(t, s, "of another tenant", "b", "third", "DomainTaken=True")
		if got := metricsOf(t, c)["kata_vfio_domain_failures_total set condition"]; got < 5 || got > 15 {
			t.Errorf("%v failures are counted in a minute, want 5 to 15: with pauses in between", got)
		}
	})
}

// A claim that is allocated again while its answer is on the way does not get the answer of the former allocation.
func TestDomainsOfAnotherAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, once := domainServer(t, "a", "b"), &atomic.Bool{}
		reservesDomains(t, s, func(a clienttesting.Action) error {
			if a.GetVerb() == "patch" && once.CompareAndSwap(true, false) {
				s.put("resourceclaims", &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "second"}})
				s.allocateDomain("a/first 01")
				s.allocateDomain("b/second 02")
			}
			return nil
		})
		after(soon)
		once.Store(true)
		s.allocateDomain("b/second 02")
		after(5 * soon)
		if once.Load() {
			t.Fatal("the claim was not answered")
		}
		first, second := s.domainAnswers("a", "first"), s.domainAnswers("b", "second")
		if first == second || first == "" || second == "" {
			t.Errorf("the answers are %q and %q, want that one of them has the domain", first, second)
		}
	})
}

// Domains are reserved beside shared GPUs, and the conditions of a claim's devices stay apart.
func TestDomainsBesideSharedGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		s.createNamespace("team-a")
		leadWith(t, s, Config{Drivers: []string{otherDriver}, Tenancy: &Tenancy{Namespace: tenantsNamespace, Reserve: true}}, nil)
		s.put("resourceslices", sliceOf("gpus", v1alpha1.DriverName, gpuPool, domainDevice("01", "Switch/x")))
		after(soon)
		s.allocateDomain("team-a/one 01")
		s.allocateOurs("vm")
		after(10 * soon)
		wantDomainAnswer(t, s, "beside a shared GPU", "team-a", "one", "DomainReserved=True")
		wantAnswer(t, s, "beside a domain", "vm", "TwinReserved=True")
	})
}

// A claim that nobody waits for is left alone.
func TestClaimsWithoutDomainsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := domainServer(t, "a")
		reservesDomains(t, s, func(a clienttesting.Action) error {
			if a.GetVerb() == "patch" {
				t.Errorf("it patched %s", a.GetResource().Resource)
			}
			return nil
		})
		after(soon)
		c := unconditional(domainClaim("a/first 01", 0))
		s.put("resourceclaims", c)
		s.put("resourceclaims", &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pending"}})
		s.put("configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "other"}})
		after(time.Minute)
		wantDomainAnswer(t, s, "without conditions", "a", "first", "")
	})
}
