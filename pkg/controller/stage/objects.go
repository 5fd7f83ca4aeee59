package stage

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

const (
	// request is the name of the claim's one request, and of the claim in its pod.
	request = "device"
	// container is the name of the pod's one container.
	container = "sanitizer"
)

// Check reports the first profile of which no pod can be made.
func Check(s *v1alpha1.Sanitizers) error {
	for i := range s.Profiles {
		if _, err := resources(&s.Profiles[i]); err != nil {
			return err
		}
	}
	return nil
}

// Claim returns the claim of a device's stage. It selects this device only, and tolerates the taint of a waiting device. It
// also tolerates the taint of a tenant, which the device has in an exclusive domain that its last tenant still has: the stage
// is not a tenant.
func Claim(s *v1alpha1.Sanitizers, w *Waiting) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: objectMeta(s, w),
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: request,
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: s.DeviceClass, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Selectors:   []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: selector(w.Device)}}},
				Tolerations: []resourceapi.DeviceToleration{tolerates(v1alpha1.TaintSanitizing), tolerates(v1alpha1.TaintTenant)},
			},
		}}}},
	}
}

// tolerates returns a toleration of a taint with any value.
func tolerates(taint string) resourceapi.DeviceToleration {
	return resourceapi.DeviceToleration{Key: taint, Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoSchedule}
}

// selector selects a device by its function, on whatever node: the pod's affinity selects the node. A pair has the address
// of its GPU, and differs by its VF.
func selector(d *cluster.Device) string {
	return fmt.Sprintf("device.driver == %q && device.attributes[%q].?%s.orValue(\"\") == %q && device.attributes[%q].?%s.orValue(\"\") == %q",
		v1alpha1.DriverName, "resource.kubernetes.io", "pciBusID", d.Details.Address, v1alpha1.DriverName, publish.AttrVF, d.Details.VF)
}

func objectMeta(s *v1alpha1.Sanitizers, w *Waiting) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.Namespace, Name: Name(w.ID),
		Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedByController, LabelSanitizer: w.Profile,
			"app.kubernetes.io/name": "kata-vfio", "app.kubernetes.io/component": "sanitizer", "app.kubernetes.io/part-of": "kata-vfio",
		},
		Annotations: map[string]string{AnnotationDevice: w.ID.String()},
	}
}

// Pod returns the pod of a device's stage.
func Pod(s *v1alpha1.Sanitizers, w *Waiting) (*corev1.Pod, error) {
	profile, ok := s.Profile(w.Profile)
	if !ok {
		return nil, fmt.Errorf("make the pod of %s: there is no sanitizer profile %q", w.ID, w.Profile)
	}
	resources, err := resources(&profile)
	if err != nil {
		return nil, err
	}
	meta := objectMeta(s, w)
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			RuntimeClassName: &profile.RuntimeClass, RestartPolicy: corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:        new(int64(profile.TimeoutSeconds)),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Affinity:        onNode(w.Node),
			SecurityContext: podSecurity(&profile),
			ResourceClaims:  []corev1.PodResourceClaim{{Name: request, ResourceClaimName: &meta.Name}},
			Containers: []corev1.Container{{
				Name: container, Image: profile.Image, Command: profile.Command, Args: profile.Args, Resources: resources,
				// After a crash there is no result. The last output of the container then says why.
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext:          containerSecurity(&profile),
			}},
		},
	}, nil
}

// resources returns the resources of the profile, and adds the claim of the device.
func resources(p *v1alpha1.Sanitizer) (corev1.ResourceRequirements, error) {
	var r corev1.ResourceRequirements
	if len(p.Resources) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(p.Resources))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			return r, fmt.Errorf("decode the resources of sanitizer profile %s: %w", p.Name, err)
		}
	}
	r.Claims = []corev1.ResourceClaim{{Name: request}}
	return r, nil
}

// onNode selects a node by its name, and leaves its readiness to the scheduler.
func onNode(node string) *corev1.Affinity {
	// Not by spec.nodeName: the scheduler would skip the pod, and nothing would allocate its claim.
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
}

func podSecurity(p *v1alpha1.Sanitizer) *corev1.PodSecurityContext {
	c := &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if !p.Privileged {
		c.RunAsNonRoot = new(true)
	}
	return c
}

func containerSecurity(p *v1alpha1.Sanitizer) *corev1.SecurityContext {
	if p.Privileged {
		return &corev1.SecurityContext{Privileged: new(true)}
	}
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
