package controller

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// gpusOn has the plugin of a node publish GPUs, of which the first are quarantined.
func (s *apiServer) gpusOn(node string, generation int64, gpus, quarantined int) {
	s.t.Helper()
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "node-uid"}}}}
	slice.Spec = resourceapi.ResourceSliceSpec{
		Driver: "kata-vfio.dev", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node + "/kata-vfio.dev", Generation: generation, ResourceSliceCount: 1},
	}
	for i := range gpus {
		address := fmt.Sprintf("0000:%02x:00.0", i+1)
		d := deviceOf("gpu", fmt.Sprintf("gpu-0000-%02x-00-0", i+1))
		d.Attributes[publish.AttrPCIBusID] = resourceapi.DeviceAttribute{StringValue: &address}
		if i < quarantined {
			d.Taints = []resourceapi.DeviceTaint{{Key: publish.TaintQuarantined, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, d)
	}
	s.put("resourceslices", slice)
}

// counted returns the placeholders of each node.
func (s *apiServer) counted() map[string]int {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	in := resource("resourceslices")
	list, err := s.tracker.List(in, in.GroupVersion().WithKind("ResourceSlice"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, one := range list.(*resourceapi.ResourceSliceList).Items {
		if one.Spec.Driver == GPUCountDriver {
			counts[*one.Spec.NodeName] += len(one.Spec.Devices)
			if len(one.OwnerReferences) != 1 || one.OwnerReferences[0].UID != "node-uid" {
				s.t.Errorf("slice %s is owned by %v, want its node", one.Name, one.OwnerReferences)
			}
		}
	}
	return counts
}

// TestGPUsAreCounted: the count follows the GPUs of each node, and comes back after a kubelet has deleted it.
func TestGPUsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.gpusOn("n1", 1, 8, 0)
		s.gpusOn("n2", 1, 70, 2)
		c := leadWith(t, s, Config{CountGPUs: true}, nil)
		want := func(when string, n1, n2 int) {
			t.Helper()
			after(soon)
			if got := s.counted(); got["n1"] != n1 || got["n2"] != n2 {
				t.Errorf("%s, the counts are %v, want n1: %d and n2: %d", when, got, n1, n2)
			}
		}
		want("at the start", 8, 68)
		s.gpusOn("n1", 2, 8, 3)
		s.gpusOn("n2", 2, 60, 0)
		want("after GPUs were quarantined", 5, 60)
		client := c.config.Client.ResourceV1().ResourceSlices()
		for _, name := range []string{"n1", "n1-gpu-count.kata-vfio.dev-0"} {
			if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want("after the plugin's slices are gone, too", 0, 60)
		s.gpusOn("n1", 1, 8, 0)
		want("after the plugin is back", 8, 60)
		if err := client.Delete(t.Context(), "n1-gpu-count.kata-vfio.dev-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want("after the kubelet deleted the count", 8, 60)
		s.gpusOn("n2", 3, 0, 0)
		want("without GPUs", 8, 0)
	})
}

// TestDrainedGPUsAreNotCounted: the count follows the DeviceTaintRules, of a node and of all nodes.
func TestDrainedGPUsAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.gpusOn("n1", 1, 8, 0)
		s.gpusOn("n2", 1, 6, 0)
		leadWith(t, s, Config{CountGPUs: true, TaintRules: true}, nil)
		want := func(when string, n1, n2 int) {
			t.Helper()
			after(soon)
			if got := s.counted(); got["n1"] != n1 || got["n2"] != n2 {
				t.Errorf("%s, the counts are %v, want n1: %d and n2: %d", when, got, n1, n2)
			}
		}
		want("at the start", 8, 6)
		s.put("devicetaintrules", taintRule("gpu", "kata-vfio.dev", "n1/kata-vfio.dev", "gpu-0000-01-00-0", resourceapi.DeviceTaintEffectNoSchedule))
		want("after a drain of a GPU", 7, 6)
		s.put("devicetaintrules", taintRule("node", "kata-vfio.dev", "n2/kata-vfio.dev", "", resourceapi.DeviceTaintEffectNoExecute))
		want("after a drain of a node", 7, 0)
		s.put("devicetaintrules", taintRule("node", "kata-vfio.dev", "n2/kata-vfio.dev", "", resourceapi.DeviceTaintEffectNone))
		want("with a rule that only informs", 7, 6)
		s.put("devicetaintrules", taintRule("all", "", "", "", resourceapi.DeviceTaintEffectNoSchedule))
		want("after all devices were taken out", 0, 0)
		s.removeFrom("devicetaintrules", "", "all")
		want("after that has ended", 7, 6)
		s.removeFrom("devicetaintrules", "", "gpu")
		want("without a drain", 8, 6)
	})
}

// TestCountsWithoutRules: an API server before Kubernetes 1.37 has no DeviceTaintRules, and is not asked for them.
func TestCountsWithoutRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.gpusOn("n1", 1, 8, 0)
		c := leadWith(t, s, Config{CountGPUs: true, ClassesNamespace: tenantsNamespace}, refusesRules)
		after(soon)
		if got, why := s.counted()["n1"], c.NotReady(); got != 8 || why != "" {
			t.Errorf("%d GPUs are counted, and the controller is not ready because %q; want 8, and that it is ready", got, why)
		}
	})
}

// TestCountsAreTriedAgain: a write that fails is counted, and repeated.
func TestCountsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, failures := newAPIServer(t), 3
		s.gpusOn("n1", 1, 8, 0)
		c := leadWith(t, s, Config{CountGPUs: true}, func(a clienttesting.Action) error {
			if a.GetVerb() != "create" || failures == 0 {
				return nil
			}
			failures--
			return fmt.Errorf("etcd is away")
		})
		after(5 * time.Second)
		if got := s.counted()["n1"]; got != 8 {
			t.Errorf("the count is %d, want 8", got)
		}
		if got := metricsOf(t, c)["kata_vfio_gpu_count_failures_total"]; got != 3 {
			t.Errorf("%v failures were counted, want 3", got)
		}
	})
}

// TestCountsAreWrittenOnce: a count that is as it is wanted is not written again, although the API server sets the times of the taints.
func TestCountsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, writes := newAPIServer(t), &atomic.Int32{}
		s.gpusOn("n1", 1, 8, 0)
		leadWith(t, s, Config{CountGPUs: true}, func(a clienttesting.Action) error {
			if verb := a.GetVerb(); verb == "create" || verb == "update" {
				writes.Add(1)
			}
			return nil
		})
		for i, tt := range []struct {
			gpus int
			want int32
		}{{8, 1}, {5, 2}, {6, 3}} {
			s.gpusOn("n1", int64(i+1), tt.gpus, 0)
			after(time.Minute)
			if got := s.counted()["n1"]; got != tt.gpus || writes.Load() != tt.want {
				t.Errorf("with %d GPUs, the count is %d after %d writes, want %d writes", tt.gpus, got, writes.Load(), tt.want)
			}
		}
	})
}
