package cluster_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
)

// TestAllocationsThatAreInOrder: what looks like a fault of a scheduler and is none.
func TestAllocationsThatAreInOrder(t *testing.T) {
	for name, plant := range map[string]func(s *world){
		"a claim that observes": func(s *world) {
			observer := claim("t2", "observer")
			observer.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
			s.Claims = append(s.Claims, observer)
		},
		"another driver's claim without finalizer": func(s *world) {
			other := claim("t2", "other")
			other.Finalizers, other.Status.Devices = nil, nil
			other.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
			s.Claims = append(s.Claims, other)
		},
		"a pod of another RuntimeClass whose claim is gone": func(s *world) {
			p := pod("t2", "plain", "runc")
			p.Status.ResourceClaimStatuses[0].ResourceClaimName = new("gone")
			s.Pods = append(s.Pods, p)
		},
		"a pod that has ended": func(s *world) {
			p := pod("t2", "done", "kata-gpu")
			p.Status.Phase, p.Status.ResourceClaimStatuses[0].ResourceClaimName = "Succeeded", new("gone")
			s.Pods = append(s.Pods, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			plant(s)
			for _, f := range judge(s).Findings {
				if (f.ID == "K8S-035" || f.ID == "K8S-036" || f.ID == "K8S-037") && f.State != finding.Pass {
					t.Errorf("got %s %s: %s; want a pass", f.ID, f.State, f.Text)
				}
			}
		})
	}
}

// TestPodThatEndsWhileTheClusterIsRead is not accused: its claim was deleted with it, after the pods were listed.
func TestPodThatEndsWhileTheClusterIsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		after func(*corev1.PodList)
		state finding.State
	}{
		"still runs":   {func(*corev1.PodList) {}, finding.Fail},
		"has ended":    {func(l *corev1.PodList) { l.Items[0].Status.Phase = corev1.PodSucceeded }, finding.NotApplicable},
		"is gone":      {func(l *corev1.PodList) { l.Items = nil }, finding.NotApplicable},
		"is a new one": {func(l *corev1.PodList) { l.Items[0].UID = "new" }, finding.NotApplicable},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("t1", "train", "kata-gpu")
			p.UID = "old"
			client := fake.NewClientset(&nodev1.RuntimeClass{ObjectMeta: named("kata-gpu"), Handler: "kata-gpu"})
			claimsListed := false
			client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				switch action.GetResource().Resource {
				case "resourceclaims":
					claimsListed = true
					return true, &resourceapi.ResourceClaimList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				case "pods":
					list := &corev1.PodList{Items: []corev1.Pod{*p.DeepCopy()}}
					if claimsListed {
						tt.after(list)
					}
					return true, list, nil
				}
				return false, nil, nil
			})
			s, err := cluster.Read(t.Context(), kubetest.New(client), cluster.Options{RuntimeClasses: []string{"kata-gpu"}})
			if err != nil {
				t.Fatal(err)
			}
			profile, _ := finding.ProfileNamed(finding.MultiTenant)
			found := cluster.Run(s, checks(), finding.Options{Profile: profile, Today: "2026-11-22"}).Findings
			i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.ID == "K8S-036" })
			if f := found[i]; f.State != tt.state || f.State == finding.Fail && !strings.Contains(f.Text, "pod t1/train runs on n1") {
				t.Errorf("K8S-036 is %s: %s; want %s", f.State, f.Text, tt.state)
			}
		})
	}
}
