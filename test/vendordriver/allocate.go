package vendordriver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is what a scheduler knows when it allocates.
type view struct {
	slice  *resourceapi.ResourceSlice
	rules  []resourceapi.DeviceTaintRule
	claims []resourceapi.ResourceClaim
}

// ErrNoDevice says that all of the driver's devices are tainted or allocated.
var ErrNoDevice = errors.New("no device is free")

// Look reads the view by which Allocate decides while [Faults.Late] is set.
func (d *Driver) Look(ctx context.Context) error {
	seen, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = seen
	return nil
}

// look reads the driver's slice, the rules and the claims.
func (d *Driver) look(ctx context.Context) (*view, error) {
	api, all := d.Client.ResourceV1(), metav1.ListOptions{}
	slice, err := api.ResourceSlices().Get(ctx, d.sliceName(), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at the slice: %w", err)
	}
	rules, err := api.DeviceTaintRules().List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("look at taints: %w", err)
	}
	claims, err := api.ResourceClaims(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("look at claims: %w", err)
	}
	return &view{slice, rules.Items, claims.Items}, nil
}

// Allocate does what the scheduler does for a pod with one claim of one device: it chooses the first free device without a
// taint, and writes allocation and reservation. It returns the claim as it is then, [ErrNoDevice] if there is none, and the API
// server's error if the claim changed since it was read.
func (d *Driver) Allocate(ctx context.Context, c *resourceapi.ResourceClaim, pod resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	d.mu.Lock()
	faults, seen := d.faults, d.seen
	d.mu.Unlock()
	if !faults.Late || seen == nil {
		var err error
		if seen, err = d.look(ctx); err != nil {
			return nil, err
		}
	}
	i := slices.IndexFunc(seen.slice.Spec.Devices, func(dev resourceapi.Device) bool {
		return !seen.isAllocated(dev.Name) && (faults.IgnoresTaints || !seen.isTainted(dev.Name))
	})
	if i < 0 {
		return nil, ErrNoDevice
	}
	c = c.DeepCopy()
	c.Status.Allocation = d.allocation(c, seen.slice.Spec.Devices[i].Name)
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{pod}
	return d.Client.ResourceV1().ResourceClaims(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
}

// allocation is that of one device to the claim's first request.
func (d *Driver) allocation(c *resourceapi.ResourceClaim, name string) *resourceapi.AllocationResult {
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: Name, Pool: d.Node, Device: name}
	if len(c.Spec.Devices.Requests) > 0 {
		result.Request = c.Spec.Devices.Requests[0].Name
	}
	now := metav1.Now()
	return &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}}, AllocationTimestamp: &now,
	}
}

// isAllocated reports whether a claim has a device.
func (v *view) isAllocated(name string) bool {
	return slices.ContainsFunc(v.claims, func(c resourceapi.ResourceClaim) bool {
		return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == Name && r.Pool == v.slice.Spec.Pool.Name && r.Device == name
		})
	})
}

// isTainted reports whether a rule keeps claims from a device. Every taint here does.
func (v *view) isTainted(name string) bool {
	is := func(want *string, is string) bool { return want == nil || *want == is }
	return slices.ContainsFunc(v.rules, func(r resourceapi.DeviceTaintRule) bool {
		s := r.Spec.DeviceSelector
		return s != nil && r.Spec.Taint.Effect != resourceapi.DeviceTaintEffectNone &&
			is(s.Driver, Name) && is(s.Pool, v.slice.Spec.Pool.Name) && is(s.Device, name)
	})
}
