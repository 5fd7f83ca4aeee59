package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/util/retry"
)

// Claims are the ResourceClaims of a namespace. Those of client-go implement it.
type Claims interface {
	ApplyStatus(context.Context, *resourceac.ResourceClaimApplyConfiguration, metav1.ApplyOptions) (*resourceapi.ResourceClaim, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*resourceapi.ResourceClaim, error)
}

// ReadClaim returns the claim as the API server has it now, with all of its status.
type ReadClaim func(context.Context) (*resourceapi.ResourceClaim, error)

// WriteClaimStatus writes the entries of status.devices in want, as the field manager. It may be repeated. want names the claim and its
// UID. A claim that has replaced it is not changed, and the error is a conflict. The same holds for a claim with another resourceVersion,
// if want has one.
//
// WriteClaimStatus uses server-side apply, which leaves the entries and conditions of other writers unchanged. But the API server of
// Kubernetes 1.37 refuses every apply for a claim with opaque parameters that are not in its own form of JSON, with sorted keys: it
// compares the allocation before and after by its bytes (+k8s:update=NoModify in resource/v1). Go programs write such parameters into
// DeviceClasses. After such a refusal, WriteClaimStatus reads the claim, merges the entries itself, and replaces the list by a merge patch,
// which does not touch the bytes of the allocation. Conditions that want no longer has then stay.
func WriteClaimStatus(ctx context.Context, claims Claims, manager string, want *resourceac.ResourceClaimApplyConfiguration, read ReadClaim) error {
	// Force is needed because after a merge patch the manager owns the fields by its operation Update, which counts as another owner: an
	// apply that changes the fields would conflict.
	_, err := claims.ApplyStatus(ctx, want, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if !refusesAllocation(err) {
		return err
	}
	// A claim that was replaced is a conflict at each try. All pauses of the backoff together are below half a second.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return merge(ctx, claims, manager, want, read) })
	if refusesAllocation(err) {
		err = fmt.Errorf("%w: the API server of Kubernetes 1.37 accepts no change of the status, because the claim's parameters are JSON with spaces: "+
			"apply its DeviceClass or claim template again with kubectl, and create the pod again", err)
	}
	return err
}

// refusesAllocation reports whether the API server refused the change of the status as a change of the allocation.
func refusesAllocation(err error) bool {
	// Nothing here changes the allocation, so an error about it can only come from the comparison of its bytes.
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "status.allocation")
}

// merge replaces the list in a claim by one with the wanted entries. It fails with a conflict if the claim changes in between.
func merge(ctx context.Context, claims Claims, manager string, want *resourceac.ResourceClaimApplyConfiguration, read ReadClaim) error {
	now, err := read(ctx)
	if err != nil {
		return err
	}
	if want.UID != nil && now.UID != *want.UID || want.ResourceVersion != nil && now.ResourceVersion != *want.ResourceVersion {
		return apierrors.NewConflict(resourceapi.Resource("resourceclaims"), now.Name, errors.New("it is not the claim that the status is about"))
	}
	devices, err := merged(now.Status.Devices, want.Status)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		// The API server refuses the patch if the claim has changed since it was read, or was replaced.
		"metadata": map[string]any{"uid": now.UID, "resourceVersion": now.ResourceVersion},
		"status":   map[string]any{"devices": devices},
	})
	if err != nil {
		return fmt.Errorf("encode the status of claim %s/%s: %w", now.Namespace, now.Name, err)
	}
	_, err = claims.Patch(ctx, now.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status")
	return err
}
