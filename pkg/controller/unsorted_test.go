package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// TestAnswerToAClaimThatCannotBeApplied: the answer reaches the claim, and what the plugin wrote there stays, which the controller's own
// copy of the claim does not have.
func TestAnswerToAClaimThatCannotBeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared(t)
		lead(t, s, refusesApply)
		after(soon)
		s.allocateOurs("vm")
		data := &runtime.RawExtension{Raw: []byte(`{"link":"up"}`)}
		s.mu.Lock()
		o, err := s.tracker.Get(resource("resourceclaims"), "team-a", "vm")
		if err != nil {
			t.Fatal(err)
		}
		c := o.DeepCopyObject().(*resourceapi.ResourceClaim)
		s.mu.Unlock()
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName, Pool: nodeA + "/kata-vfio.dev/shared", Device: oursName, Data: data}}
		s.put("resourceclaims", c)
		after(4 * time.Second)
		wantAnswer(t, s, "after the grace", "vm", "TwinReserved=True")
		s.mu.Lock()
		defer s.mu.Unlock()
		if o, err = s.tracker.Get(resource("resourceclaims"), "team-a", "vm"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(data, o.(*resourceapi.ResourceClaim).Status.Devices[0].Data); diff != "" {
			t.Errorf("the plugin's data differ (-want +got):\n%s", diff)
		}
	})
}

// refusesApply refuses what Kubernetes 1.37 does of a claim whose parameters are not sorted JSON.
func refusesApply(a clienttesting.Action) error {
	p, ok := a.(clienttesting.PatchAction)
	if !ok || a.GetResource().Resource != "resourceclaims" || p.GetPatchType() != types.ApplyPatchType {
		return nil
	}
	return apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), p.GetName(),
		field.ErrorList{field.Invalid(field.NewPath("status", "allocation"), nil, "field cannot be modified once set")})
}
