package claim_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
)

// TestAllocated: what is allocated is told apart from nothing, and from what other drivers have.
func TestAllocated(t *testing.T) {
	foreign := result("other", "gpu-0")
	foreign.Driver = "gpu.example.com"
	for name, tt := range map[string]struct {
		in   *resourceapi.ResourceClaim
		want []string
		err  error
	}{
		"a device and another driver's": {in: claimOf(results(result("gpu", "gpu-0000-3b-00-0"), foreign)), want: []string{"node gpu-0000-3b-00-0"}},
		"nothing":                       {in: &resourceapi.ResourceClaim{}, err: claim.ErrNotAllocated},
		"another driver's":              {in: claimOf(results(foreign)), err: claim.ErrNotOurs},
	} {
		t.Run(name, func(t *testing.T) {
			devices, err := claim.Allocated(tt.in, driver)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Allocated: %v, want %v", err, tt.err)
			}
			var got []string
			for _, d := range devices {
				got = append(got, d.Pool+" "+d.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecodeKeepsTheNodeSelector of the allocation.
func TestDecodeKeepsTheNodeSelector(t *testing.T) {
	c := claimOf(results(result("gpu", "gpu-0000-3b-00-0")))
	c.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node"}}},
	}}}
	req, err := claim.Decode(c, driver)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Status.Allocation.NodeSelector, req.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
}
