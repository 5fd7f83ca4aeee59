package cluster_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
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
