//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// sharedClaims are claims as a PodGroup has them, and a Workload's template of one.
func sharedClaims(names ...string) []schedulingv1beta1.PodGroupResourceClaim {
	var claims []schedulingv1beta1.PodGroupResourceClaim
	for _, name := range names {
		claims = append(claims, schedulingv1beta1.PodGroupResourceClaim{Name: name, ResourceClaimName: &name})
	}
	return claims
}

func podGroup(claims ...string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "attack"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}, ResourceClaims: sharedClaims(claims...),
		},
	}
}

// workload has two templates of PodGroups, the second with the claims.
func workload(claims ...string) *schedulingv1beta1.Workload {
	policy := schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	return &schedulingv1beta1.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "attack"},
		Spec: schedulingv1beta1.WorkloadSpec{PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{
			{Name: "first", SchedulingPolicy: policy}, {Name: "second", SchedulingPolicy: policy, ResourceClaims: sharedClaims(claims...)},
		}},
	}
}

// TestPodGroups is on a control plane that has PodGroups, and slices that skip calls to drivers, which are behind feature gates.
func TestPodGroups(t *testing.T) {
	newestOnly(t, "gate DRAOptionalNodeOperations")
	// Not the test's own context, which ends before its namespaces are deleted.
	p, err := controlplane.Start(context.Background(), controlplane.Config{
		FeatureGates:  map[string]bool{"GenericWorkload": true, "DRAWorkloadResourceClaims": true, "DRAOptionalNodeOperations": true},
		RuntimeConfig: map[string]bool{"scheduling.k8s.io/v1beta1": true},
		Progress:      os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	systemNamespace(t, p)
	if err := install(t, p); err != nil {
		t.Fatal(err)
	}
	t.Run("TenantsPodGroupSharesNoClaim", func(t *testing.T) { testSharedClaims(t, p) })
	t.Run("GangHasAllItsGPUsOrNone", func(t *testing.T) { testGang(t, p) })
	t.Run("NoSliceSkipsPrepare", func(t *testing.T) { testSkippedOperations(t, p) })
}

// A device is in one VM only: what its pods would share is refused, for each kind that can say so, in tenants' namespaces.
func testSharedClaims(t *testing.T, p *controlplane.ControlPlane) {
	api, ns := client(t, p, controlplane.Admin()).SchedulingV1beta1(), tenantNamespace(t, p)
	const want = "the pods of a PodGroup share its resourceClaims, and a device is in one VM only"
	until(t, "the policy is in force", func(ctx context.Context) error {
		if _, err := api.PodGroups(ns).Create(ctx, podGroup("gpu"), dryRunCreate()); err == nil {
			return errors.New("a PodGroup may share a claim")
		}
		return nil
	})
	free := namespace(t, p)
	for _, claims := range [][]string{nil, {"gpu"}, {"gpu", "vf"}} {
		refusal := want
		if len(claims) == 0 {
			refusal = ""
		}
		_, err := api.PodGroups(ns).Create(t.Context(), podGroup(claims...), dryRunCreate())
		wantForbidden(t, err, refusal)
		_, err = api.Workloads(ns).Create(t.Context(), workload(claims...), dryRunCreate())
		wantForbidden(t, err, refusal)
		_, err = api.PodGroups(free).Create(t.Context(), podGroup(claims...), dryRunCreate())
		wantForbidden(t, err, "")
		_, err = api.Workloads(free).Create(t.Context(), workload(claims...), dryRunCreate())
		wantForbidden(t, err, "")
	}
}
