package contend

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

const address = "0000:3b:00.0"

// ours is our device, twin one of the other driver's.
func (r *contest) ours() cluster.ID {
	return cluster.ID{Driver: v1alpha1.DriverName, Pool: r.Node + "/shared", Name: "gpu-0000-3b-00-0"}
}

func (r *contest) twin(name string) cluster.ID {
	return cluster.ID{Driver: Driver, Pool: r.Node, Name: name}
}

func (r *contest) createClaim(ctx context.Context, name string) error {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "any.example.com"},
		}}}},
	}
	_, err := r.Client.ResourceV1().ResourceClaims(r.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

// schedule allocates a device to a claim if the device was free when it looked, a while before it writes, as a scheduler does
// with its view. Some claims tolerate taints.
func (r *contest) schedule(ctx context.Context, claim string, d cluster.ID) bool {
	tolerates := r.chance(7)
	r.mu.Lock()
	mine := r.taken[d.Name] == ""
	if mine {
		r.taken[d.Name], r.careless[claim] = claim, tolerates
	}
	r.mu.Unlock()
	if !mine {
		return false
	}
	looked := time.Now()
	free, err := r.allocatable(ctx, d, tolerates)
	if err == nil && free && r.pause(ctx, stale) {
		if err = r.allocate(ctx, claim, d); err == nil {
			r.locked(fmt.Sprintf("%s has %s (careless %v)", claim, d, tolerates), func() {
				r.allocated[d.Name], r.careless[claim] = claim, tolerates || time.Since(looked) > grace
				r.checkReserved()
			})
			return true
		}
	}
	r.release(ctx, claim, d)
	return false
}

// allocatable reports whether a device is published, and without a taint that matters.
func (r *contest) allocatable(ctx context.Context, d cluster.ID, tolerates bool) (bool, error) {
	rules, err := r.rules(ctx)
	if err != nil {
		return false, err
	}
	if rule, ok := rules[d.Name]; ok && !tolerates && rule.Spec.Taint.Effect == resourceapi.DeviceTaintEffectNoSchedule {
		return false, nil
	}
	name := r.Node + "-theirs"
	if d.Driver == v1alpha1.DriverName {
		name = r.Node + "-ours"
	}
	s, err := r.Client.ResourceV1().ResourceSlices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return len(s.Spec.Devices[0].Taints) == 0 || tolerates, nil
}

// rules are the rules for devices of this schedule, by the device.
func (r *contest) rules(ctx context.Context) (map[string]*resourceapi.DeviceTaintRule, error) {
	devices := []cluster.ID{r.ours()}
	for _, name := range r.twins {
		devices = append(devices, r.twin(name))
	}
	all := map[string]*resourceapi.DeviceTaintRule{}
	for _, d := range devices {
		rule, err := r.Client.ResourceV1().DeviceTaintRules().Get(ctx, v1alpha1.TwinRuleName(d.Driver, d.Pool, d.Name), metav1.GetOptions{})
		if err == nil {
			all[d.Name] = rule
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return all, nil
}

func (r *contest) noRules(ctx context.Context) error {
	rules, err := r.rules(ctx)
	if err == nil && len(rules) > 0 {
		err = fmt.Errorf("there are %d: %+v", len(rules), rules)
	}
	return err
}

// allocate writes an allocation to a claim, as the scheduler does.
func (r *contest) allocate(ctx context.Context, name string, d cluster.ID) error {
	claims := r.Client.ResourceV1().ResourceClaims(r.Namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: d.Driver, Pool: d.Pool, Device: d.Name}
	if d.Driver == v1alpha1.DriverName {
		result.BindingConditions, result.BindingFailureConditions = []string{v1alpha1.ConditionTwinReserved}, []string{v1alpha1.ConditionTwinInUse}
	}
	claim.Status = resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		AllocationTimestamp: &now, Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{r.Node}}},
		}}},
	}}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// release deallocates a claim, and has the scheduler know that the device is free.
func (r *contest) release(ctx context.Context, name string, d cluster.ID) {
	forget := func(from map[string]string) {
		if from[d.Name] == name {
			delete(from, d.Name)
		}
	}
	r.locked(name+" is deallocated", func() {
		forget(r.allocated)
		if r.reserved == name {
			r.reserved = ""
		}
	})
	// It must not be cut off by the schedule's end: the scheduler's own view would be wrong.
	err := r.deallocate(context.WithoutCancel(ctx), name)
	r.locked(fmt.Sprintf("%s is free: %v", name, err), func() { forget(r.taken) })
}

func (r *contest) deallocate(ctx context.Context, name string) error {
	claims := r.Client.ResourceV1().ResourceClaims(r.Namespace)
	for {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil || claim.Status.Allocation == nil {
			return err
		}
		claim.Status = resourceapi.ResourceClaimStatus{}
		if _, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// answer is the type of the condition that is True for our device of a claim, not older than its allocation.
func (r *contest) answer(ctx context.Context, name string) (string, error) {
	claim, err := r.Client.ResourceV1().ResourceClaims(r.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Allocation == nil {
		return "", errors.New("the claim is not allocated")
	}
	answer := ""
	for _, d := range claim.Status.Devices {
		for _, c := range d.Conditions {
			if c.Status == metav1.ConditionTrue && !c.LastTransitionTime.Time.Before(claim.Status.Allocation.AllocationTimestamp.Time) && answer != v1alpha1.ConditionTwinInUse {
				answer = c.Type
			}
		}
	}
	return answer, nil
}

// free is what the plugin's gate finds out: no claim has the other side, and no container uses it.
func (r *contest) free(ctx context.Context) bool {
	for _, name := range []string{"container-0", "container-1"} {
		claim, err := r.Client.ResourceV1().ResourceClaims(r.Namespace).Get(ctx, r.claim(name), metav1.GetOptions{})
		if err != nil || claim.Status.Allocation != nil {
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.containers) == 0
}

// publishOurs publishes our device as the function is now.
func (r *contest) publishOurs(ctx context.Context) error {
	d := resourceapi.Device{Name: r.ours().Name, Attributes: attributes(map[string]string{"resource.kubernetes.io/pciBusID": address, "sharedWith": Driver})}
	d.BindsToNode, d.BindingConditions, d.BindingFailureConditions = new(true), []string{v1alpha1.ConditionTwinReserved}, []string{v1alpha1.ConditionTwinInUse}
	return r.publish(ctx, r.Node+"-ours", r.ours(), func() []resourceapi.Device {
		r.mu.Lock()
		defer r.mu.Unlock()
		kernel := r.kernel
		d.Attributes["driver"], d.Taints = resourceapi.DeviceAttribute{StringValue: &kernel}, nil
		if r.quarantined {
			d.Taints = []resourceapi.DeviceTaint{{Key: "kata-vfio.dev/quarantined", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		return []resourceapi.Device{d}
	})
}

// publishTwins publishes the other driver's devices.
func (r *contest) publishTwins(ctx context.Context) error {
	return r.publish(ctx, r.Node+"-theirs", r.twin(""), func() []resourceapi.Device {
		var devices []resourceapi.Device
		for _, name := range r.twins {
			devices = append(devices, resourceapi.Device{Name: name, Attributes: attributes(map[string]string{"resource.kubernetes.io/pciBusID": address})})
		}
		return devices
	})
}

func attributes(of map[string]string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for name, value := range of {
		all[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{StringValue: &value}
	}
	return all
}

// publish creates or updates a slice. It reads the devices after the slice, so that of two writes the later one has the later state.
func (r *contest) publish(ctx context.Context, name string, of cluster.ID, devices func() []resourceapi.Device) error {
	all := r.Client.ResourceV1().ResourceSlices()
	for {
		s, err := all.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			s = &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
				Driver: of.Driver, NodeName: &r.Node, Pool: resourceapi.ResourcePool{Name: of.Pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices(),
			}}
			_, err = all.Create(ctx, s, metav1.CreateOptions{})
		} else if err == nil {
			s.Spec.Devices = devices()
			_, err = all.Update(ctx, s, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
}

func (r *contest) withdraw(ctx context.Context, name string) error {
	return r.Client.ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{})
}
