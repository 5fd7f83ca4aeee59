package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// do executes one action. Each write carries the UID and the resource version of the object that it was decided on, so
// that the API server refuses it if the object changed: what a controller that lost its lease does late has no effect.
func (c *Controller) do(ctx context.Context, view *twin.View, g *twin.GPU, a twin.Action) error {
	switch a := a.(type) {
	case twin.CreateRule:
		return c.createRule(ctx, view, g, a)
	case twin.TouchRule:
		return c.touchRule(ctx, g, a)
	case twin.DeleteRule:
		return c.deleteRule(ctx, a)
	case twin.SetCondition:
		return c.setCondition(ctx, view, g, a)
	}
	return fmt.Errorf("execute %T: unknown action", a)
}

func (c *Controller) createRule(ctx context.Context, view *twin.View, g *twin.GPU, a twin.CreateRule) error {
	node, _, _ := strings.Cut(g.PCI, "/")
	r := &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			// The name follows from the device, so that the API server refuses the same rule from a controller that lost its
			// lease.
			Name:   v1alpha1.TwinRuleName(a.Target.Driver, a.Target.Pool, a.Target.Name),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}, Annotations: annotations(g, a.TwinOf, a.Mark),
			OwnerReferences: view.Owners(node),
		},
		Spec: ruleSpec(a.Target, a.Has),
	}
	if _, err := c.config.Client.ResourceV1().DeviceTaintRules().Create(ctx, r, metav1.CreateOptions{FieldManager: Name}); err != nil {
		return fmt.Errorf("create DeviceTaintRule %s for %s: %w", r.Name, a.Target, err)
	}
	return nil
}

func annotations(g *twin.GPU, twinOf cluster.ID, mark string) map[string]string {
	return map[string]string{v1alpha1.AnnotationTwinPCI: g.PCI, v1alpha1.AnnotationTwinOf: twinOf.String(), v1alpha1.AnnotationTwinClaim: mark}
}

func ruleSpec(target cluster.ID, side string) resourceapi.DeviceTaintRuleSpec {
	return resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &target.Driver, Pool: &target.Pool, Device: &target.Name},
		Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintTwin, Value: side, Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}
}

// touchRule writes a rule again. The patch leaves out the taint's timeAdded: a new time would change the rule's generation, and
// the rule would count as in force only from then on (firstSeen).
func (c *Controller) touchRule(ctx context.Context, g *twin.GPU, a twin.TouchRule) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			// In a patch they are preconditions: the API server answers 409 if the object has another one.
			"uid": a.Rule.UID, "resourceVersion": a.Rule.ResourceVersion,
			"annotations": annotations(g, a.TwinOf, a.Mark), "labels": map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
		},
		"spec": ruleSpec(a.Rule.Target, a.Has),
	})
	if err != nil {
		return fmt.Errorf("encode the patch of DeviceTaintRule %s: %w", a.Rule.Name, err)
	}
	_, err = c.config.Client.ResourceV1().DeviceTaintRules().Patch(ctx, a.Rule.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Name})
	if err != nil {
		return fmt.Errorf("write DeviceTaintRule %s of %s again: %w", a.Rule.Name, a.Rule.Target, err)
	}
	return nil
}

func (c *Controller) deleteRule(ctx context.Context, a twin.DeleteRule) error {
	uid := types.UID(a.Rule.UID)
	err := c.config.Client.ResourceV1().DeviceTaintRules().Delete(ctx, a.Rule.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &a.Rule.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("delete DeviceTaintRule %s of %s: %w", a.Rule.Name, a.Rule.Target, err)
	}
	return nil
}

// setCondition sets a condition on the claim's devices. It applies all conditions of the controller, because server-side apply
// removes the conditions that an earlier apply had and this one leaves out.
func (c *Controller) setCondition(ctx context.Context, view *twin.View, g *twin.GPU, a twin.SetCondition) error {
	claim := find(view, &a.Claim)
	if claim == nil {
		return apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), a.Claim.Name)
	}
	status := resourceac.ResourceClaimStatus()
	for _, d := range sharedDevices(claim) {
		entry := resourceac.AllocatedDeviceStatus().WithDriver(d.Driver).WithPool(d.Pool).WithDevice(d.Device)
		if d.ShareID != nil {
			entry.WithShareID(string(*d.ShareID))
		}
		status.WithDevices(entry.WithConditions(conditionsFor(claim, &d, g, &a)...))
	}
	ac := resourceac.ResourceClaim(a.Claim.Name, a.Claim.Namespace).WithUID(types.UID(a.Claim.UID)).WithResourceVersion(a.Claim.ResourceVersion).WithStatus(status)
	err := kube.WriteClaimStatus(ctx, c.config.Client.ResourceV1().ResourceClaims(a.Claim.Namespace), Name, ac, c.whole(a.Claim.Namespace, a.Claim.Name))
	if err != nil {
		return fmt.Errorf("set %s of claim %s/%s: %w", a.Type, a.Claim.Namespace, a.Claim.Name, err)
	}
	c.event(claim, &a)
	return nil
}

// whole returns a function that reads a claim with the fields that slim removes from the controller's own copy. The controller
// has the right to list claims, but not to get them.
func (c *Controller) whole(namespace, name string) kube.ReadClaim {
	return func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		list, err := c.config.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if list.Items[i].Name == name {
				return &list.Items[i], nil
			}
		}
		return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
	}
}

// find returns the claim as it was when it was decided about.
func find(view *twin.View, c *twin.Claim) *resourceapi.ResourceClaim {
	listed := view.Cluster.Claim(c.Namespace, c.Name)
	if listed == nil || string(listed.Object.UID) != c.UID || listed.Object.ResourceVersion != c.ResourceVersion {
		return nil
	}
	return listed.Object
}

// sharedDevices returns the devices of a claim for which the scheduler waits.
func sharedDevices(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	return slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results), func(d resourceapi.DeviceRequestAllocationResult) bool {
		_, shared := device.NodeOfSharedPool(d.Pool)
		return d.Driver != v1alpha1.DriverName || !shared
	})
}

// conditionsFor returns the conditions of one device of a claim: those that it has, and the new one if it is for the
// device.
func conditionsFor(claim *resourceapi.ResourceClaim, d *resourceapi.DeviceRequestAllocationResult, g *twin.GPU, a *twin.SetCondition) []*metaac.ConditionApplyConfiguration {
	var all []*metaac.ConditionApplyConfiguration
	concerned := a.AllDevices || g.Holds(cluster.ID{Driver: d.Driver, Pool: d.Pool, Name: d.Device})
	for _, s := range claim.Status.Devices {
		if s.Driver != d.Driver || s.Pool != d.Pool || s.Device != d.Device {
			continue
		}
		for _, c := range s.Conditions {
			if own := c.Type == v1alpha1.ConditionTwinReserved || c.Type == v1alpha1.ConditionTwinInUse; own && (!concerned || c.Type != a.Type) {
				all = append(all, condition(c.Type, c.Status, rule.Code(c.Reason), c.Message, c.LastTransitionTime))
			}
		}
	}
	if concerned {
		status := metav1.ConditionFalse
		if a.True {
			status = metav1.ConditionTrue
		}
		all = append(all, condition(a.Type, status, a.Reason, a.Message, metav1.NewTime(time.UnixMilli(int64(a.At)))))
	}
	return all
}

func condition(kind string, status metav1.ConditionStatus, reason rule.Code, message string, at metav1.Time) *metaac.ConditionApplyConfiguration {
	return metaac.Condition().WithType(kind).WithStatus(status).WithReason(string(reason)).WithMessage(message).WithLastTransitionTime(at)
}

// event records the answer to a claim as an Event for its owner. It is called once for an answer, because the write of the
// answer succeeds once.
func (c *Controller) event(claim *resourceapi.ResourceClaim, a *twin.SetCondition) {
	kind := corev1.EventTypeWarning
	if a.Type == v1alpha1.ConditionTwinReserved && a.True {
		kind = corev1.EventTypeNormal
	}
	c.config.Recorder.Eventf(claim, nil, kind, string(a.Reason), "Answer", "%s", a.Message)
}
