package fleet_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// platform has the objects of the API server: those of the state itself, and those of its cluster.
type platform struct {
	fleet.ConformanceState
	Fleet         *objects
	DeviceClasses []resourceapi.DeviceClass
	Policies      []admissionv1.ValidatingAdmissionPolicy
	Bindings      []admissionv1.ValidatingAdmissionPolicyBinding
	Runtimes      []nodev1.RuntimeClass
}

type objects struct {
	Slices  []resourceapi.ResourceSlice
	Claims  []resourceapi.ResourceClaim
	Pods    []corev1.Pod
	Events  []corev1.Event
	Missing map[fleet.Kind]string
}

// state is the state of the objects as they are now.
func (p *platform) state() *fleet.ConformanceState {
	s, c := p.ConformanceState, &cluster.Cluster{}
	s.Fleet = &fleet.State{Cluster: c, Events: p.Fleet.Events, Missing: p.Fleet.Missing}
	add(c, p.Fleet.Slices)
	add(c, p.Fleet.Claims)
	add(c, p.Fleet.Pods)
	add(c, p.DeviceClasses)
	add(c, p.Policies)
	add(c, p.Bindings)
	add(c, p.Runtimes)
	return &s
}

func add[T any](to *cluster.Cluster, objects []T) {
	for i := range objects {
		to.Add(&objects[i])
	}
}

// complete is a platform that meets every requirement: a node with a GPU and a VF, which two pods have.
func complete() *platform {
	s := &platform{
		Fleet: &objects{
			Slices: []resourceapi.ResourceSlice{publishedSlice("worker-1/kata-vfio.dev", publishedGPU()), publishedSlice("worker-1/kata-vfio.dev/pf-0000-5e-00-0", vf())},
			Claims: []resourceapi.ResourceClaim{claimOf("gpu", "worker-1/kata-vfio.dev", "gpu-0000-3b-00-0"), claimOf("net", "worker-1/kata-vfio.dev/pf-0000-5e-00-0", "vf-0000-5e-00-2")},
			Pods:   []corev1.Pod{pod("train", "gpu"), pod("relay", "net")},
			Events: []corev1.Event{{Reason: "TriggeredScaleUp", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "team-a", Name: "train"}}},
		},
		ConformanceState: fleet.ConformanceState{
			Kubernetes: "v1.37.2", Missing: map[string]string{},
			Nodes: []corev1.Node{{
				ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
				Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.12.0", ContainerRuntimeVersion: "containerd://2.4.2"}},
			}},
			DaemonSets: []appsv1.DaemonSet{daemonSet()}, Autoscalers: []autoscalingv2.HorizontalPodAutoscaler{autoscaler()}, Audit: passing(),
		},
		DeviceClasses: []resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu.kata-vfio.dev"}}, {ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}}},
		Runtimes:      []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Handler: "runc"}, {ObjectMeta: metav1.ObjectMeta{Name: "kata-gpu"}, Handler: "kata-vm"}},
	}
	for _, resource := range []string{"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"} {
		s.APIs = append(s.APIs, fleet.API{Group: "resource.k8s.io", Resource: resource})
	}
	s.APIs = append(s.APIs, fleet.API{Group: "kueue.x-k8s.io", Resource: "workloads"}, fleet.API{Group: "custom.metrics.k8s.io"})
	for _, name := range []string{"tenant-pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-podgroups", "slices", "claims"} {
		name += ".kata-vfio.dev"
		s.Policies = append(s.Policies, admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s.Bindings = append(s.Bindings, admissionv1.ValidatingAdmissionPolicyBinding{
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		})
	}
	return s
}

func publishedSlice(pool string, d resourceapi.Device) resourceapi.ResourceSlice {
	return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: v1alpha1.DriverName, NodeName: new("worker-1"), Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: []resourceapi.Device{d},
	}}
}

func publishedGPU() resourceapi.Device {
	return resourceapi.Device{Name: "gpu-0000-3b-00-0", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: new("gpu")}, "driver": {StringValue: new("vfio-pci")}, "linkSpeed": {IntValue: new(int64(32000))},
		"pluginVersion": {VersionValue: new("0.1.0")}, "kataVersion": {VersionValue: new("4.1.0")},
	}}
}

func vf() resourceapi.Device {
	return resourceapi.Device{Name: "vf-0000-5e-00-2", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": {StringValue: new("vf")}, "pfInterface": {StringValue: new("ens5f0")}, "portSpeed": {IntValue: new(int64(100000))}, "rdma": {BoolValue: new(true)},
		"resource.kubernetes.io/pcieRoot": {StringValue: new("pci0000:5a")}, "resource.kubernetes.io/numaNode": {IntValue: new(int64(0))},
	}}
}

// claimOf is a claim that has a device, ready for its pod.
func claimOf(name, pool, device string) resourceapi.ResourceClaim {
	status := resourceapi.AllocatedDeviceStatus{Driver: v1alpha1.DriverName, Pool: pool, Device: device}
	for _, kind := range []string{"Ready", "Isolated", "Reset"} {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
	return resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{Driver: v1alpha1.DriverName, Pool: pool, Device: device}},
			}},
			Devices: []resourceapi.AllocatedDeviceStatus{status},
		},
	}
}

// pod runs in a VM with a claim. It is of a queue, of a Deployment, and serves metrics.
func pod(name, claim string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}, Annotations: map[string]string{v1alpha1.AnnotationRequiredPlugins: "[ kata-vfio ]"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name + "-7d4f8"}},
		},
		Spec: corev1.PodSpec{
			RuntimeClassName: new("kata-gpu"), ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}},
			Containers: []corev1.Container{{Name: "exporter", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9400}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func daemonSet() appsv1.DaemonSet {
	container := corev1.Container{Name: "plugin", Image: "example.com/kata-vfio:0.1.0", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9456}}}
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "kata-vfio-plugin", Generation: 2},
		Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1},
	}
}

func autoscaler() autoscalingv2.HorizontalPodAutoscaler {
	return autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "train"}},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue},
		}},
	}
}

// passing is a report of the cluster in which nothing severe fails.
func passing() *finding.Report {
	r := &finding.Report{
		Subject:  finding.Subject{Kind: "cluster", Name: "https://api.example.com", Time: "2026-11-26T10:00:00Z", Version: "v0.1.0"},
		Findings: []finding.Finding{{ID: "K8S-001", Severity: "critical", State: finding.Pass}, {ID: "K8S-011", Severity: "medium", State: finding.Fail}},
	}
	r.Finish()
	return r
}

// of returns one requirement of a report.
func of(t *testing.T, r *fleet.ConformanceReport, id string) *fleet.Requirement {
	t.Helper()
	for i := range r.Requirements {
		if r.Requirements[i].ID == id {
			return &r.Requirements[i]
		}
	}
	t.Fatalf("there is no requirement %s", id)
	return nil
}
