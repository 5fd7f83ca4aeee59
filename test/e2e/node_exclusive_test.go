//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// vfClaim is one for a VF of a PF.
const vfClaim = `
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: vf.kata-vfio.dev, selectors: [
  {cel: {expression: "device.attributes['kata-vfio.dev'].?pf.orValue('') == 'PF'"}}]}}]}}
`

// domainHasOneTenant: each PF with its VFs belongs to one tenant at a time. Two tenants get VFs of different PFs. A claim for another
// tenant's PF waits, and is refused by the plugin if it was allocated by force, until the tenant has left.
func domainHasOneTenant(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("first", vfOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "first"); err != nil {
		return err
	}
	first, err := s.vfOf(ctx, tenant, "first")
	if err != nil {
		return err
	}
	if err := errors.Join(s.awaitTenantTaint(ctx, first, true), s.apply(ctx, trusted, templates+vmPod("second", vfOfTemplate))); err != nil {
		return err
	}
	if err := s.awaitRunningIn(ctx, trusted, vmPodLimit, "second"); err != nil {
		return err
	}
	second, err := s.vfOf(ctx, trusted, "second")
	if err != nil {
		return err
	}
	if second.pf == first.pf {
		return fmt.Errorf("two tenants have VFs of %s: got %s and %s, want different PFs", first.pf, first.name, second.name)
	}
	return errors.Join(s.otherTenantWaits(ctx, first), s.clear(ctx), s.awaitTenantTaint(ctx, first, false))
}

// otherTenantWaits has another tenant ask for the domain of a VF, by the scheduler and by force, and ends the VF's claim.
func (s *site) otherTenantWaits(ctx context.Context, first vf) error {
	third := strings.NewReplacer("NAME", "third", "PF", first.pf).Replace(vfClaim) + vmPod("third", "{name: vf, resourceClaimName: third}")
	if err := s.apply(ctx, trusted, third); err != nil {
		return err
	}
	if err := errors.Join(s.awaitEvent(ctx, trusted, "third", "FailedScheduling", "cannot allocate all claims"), s.refusesForcedVF(ctx, first)); err != nil {
		return err
	}
	if err := s.deletePods(ctx, "first"); err != nil {
		return err
	}
	if err := s.awaitRunningIn(ctx, trusted, vmPodLimit, "third"); err != nil {
		return err
	}
	got, err := s.vfOf(ctx, trusted, "third")
	if err == nil && got.pf != first.pf {
		err = fmt.Errorf("the third pod has %s of %s, want one of %s", got.name, got.pf, first.pf)
	}
	return err
}

// vf is a published VF, with its pool and its PF, and what its claim has of the DeviceClass.
type vf struct {
	name, pool, pf string
	class          []resourcev1.DeviceAllocationConfiguration
}

// vfOf returns the VF that a pod has.
func (s *site) vfOf(ctx context.Context, namespace, pod string) (vf, error) {
	got, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return vf{}, err
	}
	name := got.Spec.ResourceClaims[0].ResourceClaimName
	if name == nil {
		name = got.Status.ResourceClaimStatuses[0].ResourceClaimName // made from a template
	}
	claim, err := s.client.ResourceV1().ResourceClaims(namespace).Get(ctx, *name, metav1.GetOptions{})
	if err != nil {
		return vf{}, err
	}
	result := claim.Status.Allocation.Devices.Results[0]
	devices, err := s.published(ctx)
	i := slices.IndexFunc(devices, func(d resourcev1.Device) bool { return d.Name == result.Device })
	if err != nil || i < 0 {
		return vf{}, fmt.Errorf("device %s of pod %s is not published: %w", result.Device, pod, err)
	}
	return vf{result.Device, result.Pool, *devices[i].Attributes[publish.AttrPF].StringValue, claim.Status.Allocation.Devices.Config}, nil
}

// awaitTenantTaint waits until the free VFs of the VF's PF have, or don't have, the taint of a tenant.
func (s *site) awaitTenantTaint(ctx context.Context, of vf, want bool) error {
	return s.until(ctx, fmt.Sprintf("the free VFs of %s have the taint of a tenant: %t", of.pf, want), nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		free := s.freeVFs(devices, of)
		if len(free) == 0 {
			return fmt.Errorf("%s has no free VFs", of.pf)
		}
		for _, d := range free {
			has := slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool {
				return t.Key == v1alpha1.TaintTenant && v1alpha1.IsTenantID(t.Value) && t.Effect == resourcev1.DeviceTaintEffectNoSchedule
			})
			if has != want {
				return fmt.Errorf("%s has the taints %v", d.Name, d.Taints)
			}
		}
		return nil
	})
}

// freeVFs are the other VFs of a VF's PF.
func (s *site) freeVFs(devices []resourcev1.Device, of vf) []resourcev1.Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d resourcev1.Device) bool {
		pf := d.Attributes[publish.AttrPF].StringValue
		return pf == nil || *pf != of.pf || d.Name == of.name
	})
}

// refusesForcedVF allocates another VF of a tenant's PF to a claim of another tenant, as a scheduler that has not seen the taint would.
func (s *site) refusesForcedVF(ctx context.Context, first vf) error {
	devices, err := s.published(ctx)
	if err != nil {
		return err
	}
	claimAndPod := strings.NewReplacer("NAME", "forced", "PF", first.pf).Replace(vfClaim) + vmPod("forced", "{name: vf, resourceClaimName: forced}")
	status := func(pod *corev1.Pod) resourcev1.ResourceClaimStatus {
		return first.allocatedTo(pod, s.freeVFs(devices, first)[0].Name)
	}
	return s.refusesForced(ctx, claimAndPod, status, rule.DomainOfOtherTenant, "is another tenant's while that tenant has")
}

// allocatedTo is the status of a claim that has another VF of the pool for a pod.
func (v *vf) allocatedTo(pod *corev1.Pod, device string) resourcev1.ResourceClaimStatus {
	now := metav1.Now()
	return resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			AllocationTimestamp: &now,
			Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Request: "vf", Driver: driver, Pool: v.pool, Device: device}}, Config: v.class,
			},
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
	}
}
