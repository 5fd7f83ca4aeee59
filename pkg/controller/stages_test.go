package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

const stagesNamespace = "kata-vfio-sanitizing"

// sanitizing are sanitizers with one profile, which runs one stage at a time.
func sanitizing() *v1alpha1.Sanitizers {
	return &v1alpha1.Sanitizers{Namespace: stagesNamespace, DeviceClass: "sanitize.kata-vfio.dev", Profiles: []v1alpha1.Sanitizer{{
		Name: "memory", Image: "registry.example/s@sha256:01", RuntimeClass: "kata-gpu", TimeoutSeconds: 600, MaxParallel: 1,
	}}}
}

// waits publishes devices of node-a: "01" waits for a stage, "02!" is in quarantine, "03=" is free.
func (s *apiServer) waits(devices ...string) {
	all := make([]resourceapi.Device, len(devices))
	for i, text := range devices {
		slot := text[:2]
		all[i] = deviceAt("gpu-0000-"+slot+"-00-0", "0000:"+slot+":00.0")
		if text[2:] != "=" {
			all[i].Taints = append(all[i].Taints, resourceapi.DeviceTaint{Key: v1alpha1.TaintSanitizing, Value: "memory", Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
		if text[2:] == "!" {
			all[i].Taints = append(all[i].Taints, resourceapi.DeviceTaint{Key: publish.TaintQuarantined, Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
	}
	s.put("resourceslices", sliceOf("waiting", v1alpha1.DriverName, nodeA, all...))
}

// stageOf is the name of the stage of the device at a slot.
func stageOf(slot string) string {
	return stage.Name(cluster.ID{Driver: v1alpha1.DriverName, Pool: nodeA, Name: "gpu-0000-" + slot + "-00-0"})
}

// stagePod returns a stage's pod, nil if there is none.
func (s *apiServer) stagePod(slot string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.Get(resource("pods"), stagesNamespace, stageOf(slot))
	if err != nil {
		return nil
	}
	return o.(*corev1.Pod).DeepCopy()
}

// finish ends a stage's pod after 90 s, as its kubelet says.
func (s *apiServer) finish(slot string) {
	s.t.Helper()
	p := s.stagePod(slot)
	if p == nil {
		s.t.Fatalf("%s has no stage", slot)
	}
	p.Spec.NodeName, p.Status.Phase = nodeA, corev1.PodSucceeded
	end := metav1.NewTime(p.CreationTimestamp.Add(90 * time.Second))
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sanitizer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: end}}}}
	s.put("pods", p)
}

// remove deletes an object as a user does.
func (s *apiServer) remove(in, name string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, err := s.tracker.Get(resource(in), stagesNamespace, name)
	if err == nil {
		err = s.tracker.Delete(resource(in), stagesNamespace, name)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.deleted[in] = append(s.deleted[in], gone)
}

// wantStages compares which objects of the stages' namespace there are: "pod 01", "claim 01".
func wantStages(t *testing.T, s *apiServer, when string, want ...string) {
	t.Helper()
	got := []string{}
	for _, slot := range []string{"01", "02", "03"} {
		for kind, in := range map[string]string{"pod": "pods", "claim": "resourceclaims"} {
			s.mu.Lock()
			_, err := s.tracker.Get(resource(in), stagesNamespace, stageOf(slot))
			s.mu.Unlock()
			if err == nil {
				got = append(got, kind+" "+slot)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("%s, the objects differ (-want +got):\n%s", when, diff)
	}
}

func TestStageOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		c := leadWith(t, s, Config{Sanitizers: sanitizing()}, refusesRules)
		after(soon)
		s.waits("01", "02", "03!")
		after(soon)
		wantStages(t, s, "while one stage runs", "pod 01", "claim 01")
		want := map[string]float64{"kata_vfio_twin_leader": 0, "kata_vfio_twin_reserve_seconds": 0, "kata_vfio_sanitize_waiting memory": 1, "kata_vfio_sanitize_running memory": 1, "kata_vfio_sanitize_pod_seconds memory": 0}
		if diff := cmp.Diff(want, metricsOf(t, c)); diff != "" {
			t.Errorf("while one stage runs, the metrics differ (-want +got):\n%s", diff)
		}
		s.finish("01")
		after(5 * time.Minute)
		wantStages(t, s, "while the result of the first is not decided", "pod 01", "claim 01", "pod 02", "claim 02")
		s.waits("01=", "02", "03!")
		after(soon)
		wantStages(t, s, "after the decision", "pod 02", "claim 02")
		s.finish("02")
		s.waits("01=", "02!", "03!")
		after(soon)
		wantStages(t, s, "after the quarantine")
		want = map[string]float64{"kata_vfio_twin_leader": 0, "kata_vfio_twin_reserve_seconds": 0, "kata_vfio_sanitize_waiting memory": 0, "kata_vfio_sanitize_running memory": 0, "kata_vfio_sanitize_pod_seconds memory": 2}
		if diff := cmp.Diff(want, metricsOf(t, c)); diff != "" {
			t.Errorf("at the end, the metrics differ (-want +got):\n%s", diff)
		}
		if got := c.NotReady(); got != "" {
			t.Errorf("not ready: %q", got)
		}
	})
}

// refusesRules refuses every request for DeviceTaintRules, which a cluster may not have.
func refusesRules(a clienttesting.Action) error {
	if a.GetResource().Resource == "devicetaintrules" {
		return errors.New("no such resource")
	}
	return nil
}

func TestStagesBesideSharedGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		leadWith(t, s, Config{Drivers: []string{otherDriver}, Sanitizers: sanitizing()}, nil)
		s.waits("01")
		s.allocateOurs("vm")
		after(soon)
		wantStages(t, s, "beside a shared GPU", "pod 01", "claim 01")
		wantRules(t, s, "beside a stage", map[string]string{"gpu-0": "Ours"})
		after(3 * time.Second)
		wantAnswer(t, s, "beside a stage", "vm", "TwinReserved=True")
	})
}

func TestStageWaitsForItsDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		leadWith(t, s, Config{Sanitizers: sanitizing()}, nil)
		s.allocate("train", v1alpha1.DriverName, nodeA, "gpu-0000-01-00-0")
		s.waits("01")
		after(soon)
		wantStages(t, s, "while a tenant has the device")
		s.deallocate("train")
		after(soon)
		wantStages(t, s, "after the tenant", "pod 01", "claim 01")
	})
}

func TestStageIsRepeatedAfterADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		leadWith(t, s, Config{Sanitizers: sanitizing()}, nil)
		s.waits("01")
		after(soon)
		for _, in := range []string{"pods", "resourceclaims"} {
			before := s.stagePod("01").UID
			s.remove(in, stageOf("01"))
			after(soon)
			wantStages(t, s, "after a user deleted one of the "+in, "pod 01", "claim 01")
			if s.stagePod("01").UID == before {
				t.Errorf("after a user deleted one of the %s, the pod is the same", in)
			}
		}
	})
}

// TestFailedCreationLeavesNothing: a claim without its pod is deleted, and the stage is tried again.
func TestFailedCreationLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, down := newAPIServer(t), &atomic.Bool{}
		down.Store(true)
		c := leadWith(t, s, Config{Sanitizers: sanitizing()}, func(a clienttesting.Action) error {
			if down.Load() && a.Matches("create", "pods") {
				return errors.New("quota")
			}
			return nil
		})
		s.waits("01")
		after(time.Minute)
		if got := metricsOf(t, c)["kata_vfio_sanitize_failures_total create stage"]; got < 3 || got > 5 {
			t.Errorf("%v failures are counted in a minute, want 3 to 5: with pauses in between", got)
		}
		s.waits("01=")
		after(time.Minute)
		wantStages(t, s, "when no device waits")
		s.waits("01")
		down.Store(false)
		after(6 * time.Minute)
		wantStages(t, s, "when pods can be created", "pod 01", "claim 01")
	})
}

// TestFailingListsEndNoStage: without a fresh list, a stage that looks decided stays.
func TestFailingListsEndNoStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, down := newAPIServer(t), &atomic.Bool{}
		c := leadWith(t, s, Config{Sanitizers: sanitizing()}, func(a clienttesting.Action) error {
			if down.Load() && a.GetVerb() == "list" {
				return errors.New("down")
			}
			return nil
		})
		s.waits("01")
		after(soon)
		down.Store(true)
		s.finish("01")
		s.waits("01=")
		after(time.Minute)
		wantStages(t, s, "while lists fail", "pod 01", "claim 01")
		if got := metricsOf(t, c)["kata_vfio_sanitize_failures_total list"]; got < 3 {
			t.Errorf("%v failures are counted", got)
		}
		down.Store(false)
		after(time.Minute)
		wantStages(t, s, "at the end")
	})
}

// TestLateWriteOfAStageHasNoEffect: a write of a controller that lost its lease comes after another controller went on.
func TestLateWriteOfAStageHasNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, resource    string
		before, meanwhile func(*apiServer)
		want              []string
	}{
		"a creation, after another": {
			verb: "create", resource: "resourceclaims", before: func(*apiServer) {}, meanwhile: func(*apiServer) { after(soon) },
			want: []string{"pod 01", "claim 01"},
		},
		"a deletion, after the next stage began": {
			verb: "delete", resource: "pods", before: func(s *apiServer) { s.finish("01"); s.waits("01=") },
			meanwhile: func(s *apiServer) { after(soon); s.waits("01"); after(soon) },
			want:      []string{"pod 01", "claim 01"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, held, release := newAPIServer(t), make(chan struct{}), make(chan struct{})
				var once atomic.Bool
				leadWith(t, s, Config{Sanitizers: sanitizing()}, func(a clienttesting.Action) error {
					if a.Matches(tt.verb, tt.resource) && once.CompareAndSwap(false, true) {
						close(held)
						<-release
					}
					return nil
				})
				s.waits("01")
				after(soon)
				tt.before(s)
				<-held
				leadWith(t, s, Config{Sanitizers: sanitizing()}, nil)
				tt.meanwhile(s)
				uid := s.stagePod("01").UID
				close(release)
				after(20 * time.Second)
				wantStages(t, s, "after the late write", tt.want...)
				if p := s.stagePod("01"); p == nil || p.UID != uid {
					t.Error("the late write replaced the pod")
				}
				if len(s.refused) == 0 {
					t.Error("the late write was not refused")
				}
			})
		})
	}
}

func TestRequestsOfStagesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://api.example.com", Transport: never{}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{
			Client: client, Sanitizers: sanitizing(), Recorder: events.NewFakeRecorder(1), Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.shutDown()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := c.stages.list(ctx, nil); err == nil || time.Since(start) != listLimit {
			t.Errorf("a list ends after %s with %v", time.Since(start), err)
		}
		start = time.Now()
		gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "1"}}
		if c.stages.execute(ctx, stage.Delete{Stage: &stage.Stage{Pod: &cluster.Pod{Object: gone}}}) || time.Since(start) != writeLimit {
			t.Errorf("a write ends after %s", time.Since(start))
		}
	})
}

// TestStagesOfOneNodeAreNotTheCluster: a decision takes the objects of the nodes with stages and waiting devices out of the caches.
func TestStagesOfOneNodeAreNotTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		c := leadWith(t, s, Config{Sanitizers: sanitizing()}, nil)
		elsewhere := sliceOf("elsewhere", v1alpha1.DriverName, "n-1", deviceAt("gpu-0000-01-00-0", "0000:01:00.0"))
		elsewhere.Spec.NodeName = new("n-1")
		s.put("resourceslices", elsewhere)
		s.allocate("elsewhere", v1alpha1.DriverName, "n-1", "gpu-0000-01-00-0")
		s.allocate("here", v1alpha1.DriverName, nodeA, "gpu-0000-02-00-0")
		s.waits("01", "02=")
		after(soon)
		v := c.stages.view(&listing{})
		if devices, claims := len(v.Cluster.Devices()), len(v.Cluster.Claims()); devices != 2 || claims != 2 {
			t.Errorf("the view has %d devices and %d claims, want the two devices of the node, its tenant's claim and the stage's", devices, claims)
		}
	})
}

func TestSanitizersWithWrongResourcesAreRefused(t *testing.T) {
	s := sanitizing()
	s.Profiles[0].Resources = []byte(`{"limits": {"memory": "much"}}`)
	if _, err := New(Config{Client: newAPIServer(t).client(nil), Sanitizers: s}); err == nil || !strings.Contains(err.Error(), "resources of sanitizer profile memory") {
		t.Errorf("got error %v", err)
	}
}

// TestRequestsOfAStage: a stage costs the API server as much in a large cluster as in a small one: two rounds, each with three lists
// and two writes.
func TestRequestsOfAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		var mu sync.Mutex
		requests := map[string]int{}
		leadWith(t, s, Config{Sanitizers: sanitizing()}, func(a clienttesting.Action) error {
			mu.Lock()
			defer mu.Unlock()
			requests[a.GetVerb()+" "+a.GetResource().Resource]++
			return nil
		})
		after(soon)
		mu.Lock()
		clear(requests) // those of the informers
		mu.Unlock()
		s.waits("01")
		after(soon)
		s.finish("01")
		after(soon)
		s.waits("01=")
		after(soon)
		wantStages(t, s, "at the end")
		want := map[string]int{
			"list pods": 2, "list resourceclaims": 2, "list resourceslices": 2,
			"create resourceclaims": 1, "create pods": 1, "delete pods": 1, "delete resourceclaims": 1,
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(want, requests); diff != "" {
			t.Errorf("the requests differ (-want +got):\n%s", diff)
		}
	})
}

// TestStagesOfManyNodes: all stages begin, although one round has no time to list all nodes.
func TestStagesOfManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 250
		s, lists := newAPIServer(t), &atomic.Int32{}
		for i := range nodes {
			node := fmt.Sprintf("n-%03d", i)
			d := deviceAt("gpu-0000-01-00-0", "0000:01:00.0")
			d.Taints = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintSanitizing, Value: "memory", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			one := sliceOf(node, v1alpha1.DriverName, node, d)
			one.Spec.NodeName = &node
			s.put("resourceslices", one)
		}
		config := sanitizing()
		config.Profiles[0].MaxParallel = nodes
		leadWith(t, s, Config{Sanitizers: config}, func(a clienttesting.Action) error {
			list, ok := a.(clienttesting.ListActionImpl)
			switch {
			case !ok || a.GetVerb() != "list":
			case a.GetResource().Resource == "pods": // the first list of a round
				lists.Store(0)
			case a.GetResource().Resource == "resourceslices" && strings.Contains(list.ListRestrictions.Fields.String(), "nodeName"):
				if lists.Add(1) > 150 {
					return context.DeadlineExceeded
				}
			}
			return nil
		})
		after(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		o, err := s.tracker.List(resource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), stagesNamespace)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(o.(*corev1.PodList).Items); got != nodes {
			t.Errorf("%d stages began, want %d", got, nodes)
		}
	})
}

// TestNodesAreListedInTurn: each node is among those of some round, whatever the others do.
func TestNodesAreListedInTurn(t *testing.T) {
	var nodes []string
	for i := range 2*listedAtOnce + 50 {
		nodes = append(nodes, fmt.Sprintf("n-%03d", i))
	}
	s := &stages{}
	for i, want := range [][]string{nodes[:100], nodes[100:200], slices.Concat(nodes[200:], nodes[:50]), nodes[50:150]} {
		if diff := cmp.Diff(want, s.next(nodes)); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff([]string{"n-200", "n-001"}, s.next([]string{"n-001", "n-200"})); diff != "" {
		t.Errorf("few nodes (-want +got):\n%s", diff)
	}
}
