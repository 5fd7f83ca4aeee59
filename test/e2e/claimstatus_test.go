//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// TestStatusOfUnsortedParameters: the API server refuses to apply a status where the keys of a claim's parameters are not sorted, as in what
// a Go program writes from a struct. The status is written all the same, and nothing else changes.
func TestStatusOfUnsortedParameters(t *testing.T) {
	p := cluster(t)
	ns := namespace(t, p)
	claims := client(t, p, controlplane.Admin()).ResourceV1().ResourceClaims(ns)
	before, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "unsorted"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	results := []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: driver, Pool: "worker-1", Device: "gpu-0"}, {Request: "gpu", Driver: "other.example.com", Pool: "worker-1", Device: "nic-0"},
	}
	theirs := resourcev1.AllocatedDeviceStatus{Driver: "other.example.com", Pool: "worker-1", Device: "nic-0", Data: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}
	parameters := &resourcev1.OpaqueDeviceConfiguration{
		Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(`{"kind":"VFIOConfig","apiVersion":"resource.kata-vfio.dev/v1alpha1"}`)},
	}
	before.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: results,
			Config: []resourcev1.DeviceAllocationConfiguration{{
				Source: resourcev1.AllocationConfigSourceClass, DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: parameters},
			}},
		}},
		Devices: []resourcev1.AllocatedDeviceStatus{theirs},
	}
	if before, err = claims.UpdateStatus(t.Context(), before, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := resourceac.ResourceClaim("unsorted", ns).WithUID(before.UID).WithStatus(resourceac.ResourceClaimStatus().WithDevices(
		resourceac.AllocatedDeviceStatus().WithDriver(driver).WithPool("worker-1").WithDevice("gpu-0")))
	_, err = claims.ApplyStatus(t.Context(), want, metav1.ApplyOptions{FieldManager: driver, Force: true})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.allocation") {
		t.Errorf("the API server answers %v: does kube.WriteClaimStatus still have to merge?", err)
	}
	if err := kube.WriteClaimStatus(t.Context(), claims, driver, want, reads(claims, "unsorted")); err != nil {
		t.Fatal(err)
	}
	after, err := claims.Get(t.Context(), "unsorted", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wanted := before.Status.DeepCopy()
	wanted.Devices = append(wanted.Devices, resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "worker-1", Device: "gpu-0"})
	if diff := cmp.Diff(wanted, &after.Status); diff != "" {
		t.Errorf("the status differs (-want +got):\n%s", diff)
	}
}

func reads(claims resourceclient.ResourceClaimInterface, name string) kube.ReadClaim {
	return func(ctx context.Context) (*resourcev1.ResourceClaim, error) {
		return claims.Get(ctx, name, metav1.GetOptions{})
	}
}

// unapplied are claims whose status can't be applied.
type unapplied struct{ kube.Claims }

func (unapplied) ApplyStatus(
	_ context.Context, c *resourceac.ResourceClaimApplyConfiguration, _ metav1.ApplyOptions,
) (*resourcev1.ResourceClaim, error) {
	path := field.NewPath("status", "allocation")
	return nil, apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), *c.Name, field.ErrorList{field.Invalid(path, nil, "")})
}

// mergesStatus has the plugin write a claim's status by the other way than to apply it.
func mergesStatus(t *testing.T, plugin *kubernetes.Clientset, ns, name, pool string) {
	claims := plugin.ResourceV1().ResourceClaims(ns)
	before, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := resourceac.ResourceClaim(name, ns).WithUID(before.UID).WithStatus(resourceac.ResourceClaimStatus().WithDevices(
		resourceac.AllocatedDeviceStatus().WithDriver(driver).WithPool(pool).WithDevice("gpu-0000-01-00-0").WithConditions(
			metaac.Condition().WithType("Merged").WithStatus(metav1.ConditionTrue).WithReason("Test").WithMessage("").WithLastTransitionTime(metav1.Now()))))
	if err := kube.WriteClaimStatus(t.Context(), unapplied{claims}, driver, want, reads(claims, name)); err != nil {
		t.Fatal(err)
	}
	after, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	conditions := map[string]bool{} // whether it is true
	for _, d := range after.Status.Devices {
		for _, c := range d.Conditions {
			conditions[d.Driver+" "+c.Type] = c.Status == metav1.ConditionTrue
		}
	}
	if !conditions[driver+" Merged"] || len(conditions) < 2 {
		t.Errorf("the claim's conditions are %v", conditions)
	}
}
