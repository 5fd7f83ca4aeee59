package kube_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

const manager = "driver.example.com"

var moment = metav1.NewTime(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))

// claims is an API server with one claim. It refuses what Kubernetes 1.37 refuses.
type claims struct {
	claim *resourceapi.ResourceClaim
	// unsorted says that the claim's parameters are in another form than the API server's, spaced that they have spaces.
	unsorted, spaced bool
	// changes are made by others before the next patches.
	changes []func(*resourceapi.ResourceClaim)
	patches int
}

func (c *claims) refusal() error {
	path := field.NewPath("status", "allocation")
	return apierrors.NewInvalid(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}, c.claim.Name,
		field.ErrorList{field.Invalid(path, nil, "field cannot be modified once set")})
}

func (c *claims) read(context.Context) (*resourceapi.ResourceClaim, error) {
	return c.claim.DeepCopy(), nil
}

func (c *claims) ApplyStatus(
	_ context.Context, _ *resourceac.ResourceClaimApplyConfiguration, o metav1.ApplyOptions,
) (*resourceapi.ResourceClaim, error) {
	if c.unsorted || c.spaced {
		return nil, c.refusal()
	}
	if o.FieldManager != manager || !o.Force {
		panic("applied by " + o.FieldManager)
	}
	return c.claim, nil
}

func (c *claims) Patch(
	_ context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, sub ...string,
) (*resourceapi.ResourceClaim, error) {
	c.patches++
	if len(c.changes) > 0 {
		c.changes[0](c.claim)
		c.changes = c.changes[1:]
	}
	if c.spaced {
		return nil, c.refusal()
	}
	var patch struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if patch.Metadata.ResourceVersion != c.claim.ResourceVersion || patch.Metadata.UID != c.claim.UID {
		return nil, apierrors.NewConflict(resourceapi.Resource("resourceclaims"), name, nil)
	}
	if kind != types.MergePatchType || o.FieldManager != manager || strings.Join(sub, "") != "status" || len(patch.Status) != 1 {
		panic("patched with " + string(data))
	}
	c.claim.Status.Devices = nil
	return c.claim, json.Unmarshal(patch.Status["devices"], &c.claim.Status.Devices)
}

func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "m", LastTransitionTime: moment}
}

func entry(driver string, conditions ...metav1.Condition) resourceapi.AllocatedDeviceStatus {
	return resourceapi.AllocatedDeviceStatus{Driver: driver, Pool: "worker-1/kata-vfio.dev", Device: "gpu-0", Conditions: conditions}
}

func newClaims() *claims {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpu", UID: "uid-1", ResourceVersion: "7"}}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{
		entry("other.example.com", condition("Ready", "Theirs")), entry(manager, condition("Ready", "Before"), condition("Kept", "Others")),
	}
	return &claims{claim: c}
}

// ready says that the device is ready, of the claim with a UID.
func ready(uid types.UID) *resourceac.ResourceClaimApplyConfiguration {
	c := condition("Ready", "Now")
	return resourceac.ResourceClaim("gpu", "team-a").WithUID(uid).WithStatus(resourceac.ResourceClaimStatus().WithDevices(
		resourceac.AllocatedDeviceStatus().WithDriver(manager).WithPool("worker-1/kata-vfio.dev").WithDevice("gpu-0").WithConditions(
			metaac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).WithLastTransitionTime(moment))))
}

func TestWriteApplies(t *testing.T) {
	c := newClaims()
	if err := kube.WriteClaimStatus(t.Context(), c, manager, ready("uid-1"), c.read); err != nil || c.patches != 0 {
		t.Errorf("%v, %d patches", err, c.patches)
	}
}

func TestWriteMergesWhatCannotBeApplied(t *testing.T) {
	want := []resourceapi.AllocatedDeviceStatus{
		entry("other.example.com", condition("Ready", "Theirs")), entry(manager, condition("Ready", "Now"), condition("Kept", "Others")),
	}
	relabeled := func(c *resourceapi.ResourceClaim) { c.ResourceVersion = "8" }
	for name, test := range map[string]struct {
		known   bool
		changes []func(*resourceapi.ResourceClaim)
		patches int
	}{
		"of a known version":            {known: true, patches: 1},
		"of one that is read":           {patches: 1},
		"of one that changes meanwhile": {changes: []func(*resourceapi.ResourceClaim){relabeled}, patches: 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaims()
			c.unsorted, c.changes = true, test.changes
			ac := ready("uid-1")
			if test.known {
				ac = ac.WithResourceVersion(c.claim.ResourceVersion)
			}
			err := kube.WriteClaimStatus(t.Context(), c, manager, ac, c.read)
			if diff := cmp.Diff(want, c.claim.Status.Devices); err != nil || diff != "" || c.patches != test.patches {
				t.Errorf("%v, %d patches, (-want +got):\n%s", err, c.patches, diff)
			}
		})
	}
}

func TestWriteAddsEntry(t *testing.T) {
	c := newClaims()
	c.unsorted, c.claim.Status.Devices = true, nil
	err := kube.WriteClaimStatus(t.Context(), c, manager, ready("uid-1"), c.read)
	want := []resourceapi.AllocatedDeviceStatus{entry(manager, condition("Ready", "Now"))}
	if diff := cmp.Diff(want, c.claim.Status.Devices); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		uid     types.UID
		version string
		spaced  bool
		is      func(error) bool
	}{
		"a claim that was replaced":          {uid: "uid-0", is: apierrors.IsConflict},
		"a claim that changed":               {uid: "uid-1", version: "6", is: apierrors.IsConflict},
		"parameters that can't be patched":   {uid: "uid-1", spaced: true, is: func(err error) bool { return strings.Contains(err.Error(), "again with kubectl") }},
		"the same, and what the server says": {uid: "uid-1", spaced: true, is: func(err error) bool { return strings.Contains(err.Error(), "cannot be modified once set") }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaims()
			c.unsorted, c.spaced = true, test.spaced
			before := c.claim.DeepCopy()
			ac := ready(test.uid)
			if test.version != "" {
				ac = ac.WithResourceVersion(test.version)
			}
			err := kube.WriteClaimStatus(t.Context(), c, manager, ac, c.read)
			if err == nil || !test.is(err) {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(before, c.claim); diff != "" {
				t.Errorf("the claim changed (-before +after):\n%s", diff)
			}
		})
	}
}
