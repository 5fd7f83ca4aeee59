package main

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testLabel is on all that test makes.
const testLabel = "app.kubernetes.io/managed-by=" + testManager

const testManager = "kubectl-kata-vfio-test"

// testObjects are what one node's test makes.
type testObjects struct {
	// base is the name of the claim, and the names of the pods begin with it.
	base, namespace string
	test            *podTest
	node            string
}

func (o *testObjects) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: o.namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": testManager}}
}

func (o *testObjects) claim() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: o.meta(o.base),
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name:    "device",
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: o.test.class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		}}}},
	}
}

// claimant returns a pod that names the claim and stays.
func (o *testObjects) claimant(name string) *corev1.Pod {
	pod := o.pod(name)
	pod.Spec.RuntimeClassName = &o.test.runtimeClass
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &o.base}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	return pod
}

// thief returns a pod without a claim that mounts the node's VFIO devices.
func (o *testObjects) thief(name string) *corev1.Pod {
	pod := o.pod(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "vfio", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/vfio"}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "vfio", MountPath: "/dev/vfio"}}
	return pod
}

// pod returns a pod on the node that shows what it sees. Pod Security admits it where it enforces "restricted".
func (o *testObjects) pod(name string) *corev1.Pod {
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	return &corev1.Pod{
		ObjectMeta: o.meta(name),
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(5)),
			Affinity:                      on(o.node),
			// The node was chosen for its free device, so that its taints must not end the test.
			Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "test", Image: o.test.image, Args: []string{"devices", "--stay"},
				Resources: corev1.ResourceRequirements{Requests: small},
				SecurityContext: &corev1.SecurityContext{
					RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// on requires a node by its name, which the scheduler has to find: without the scheduler a claim is not allocated.
func on(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}},
	}}}
}
