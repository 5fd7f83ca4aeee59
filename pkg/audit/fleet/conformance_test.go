package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// newest is the newest profile.
func newest() fleet.Profile { return fleet.Profiles()[0] }

// TestProfileOfACluster: platforms are certified for a Kubernetes version by its profile.
func TestProfileOfACluster(t *testing.T) {
	for kubernetes, want := range map[string]string{
		"v1.37.2": "v1.37", "v1.37.2+k3s1": "v1.37", "v1.36.6": "v1.36", "v1.36+": "v1.36", "v1.35.10": "v1.36", "v1.38.0-alpha.1": "v1.37", "v2.0.0": "v1.37", "": "v1.37",
	} {
		if got := fleet.ProfileFor(kubernetes); got.Version != want {
			t.Errorf("Kubernetes %q has the profile %s, want %s", kubernetes, got.Version, want)
		}
	}
	for name, want := range map[string]string{"v1.36": "v1.36", "1.37": "v1.37", "v1.35": "", "": "", "v1.3": ""} {
		if got, ok := fleet.ProfileNamed(name); got.Version != want || ok != (want != "") {
			t.Errorf("profile %q is %q, %t", name, got.Version, ok)
		}
	}
}

// TestRequirementsOfEachProfile: 1.37 has one more than 1.36, and the others are the same.
func TestRequirementsOfEachProfile(t *testing.T) {
	ids := func(version string) []string {
		p, ok := fleet.ProfileNamed(version)
		if !ok {
			t.Fatalf("there is no profile %s", version)
		}
		r := fleet.JudgeConformance(complete().state(), p)
		if r.Profile != p {
			t.Errorf("the report is by profile %v, want %v", r.Profile, p)
		}
		var all []string
		for i := range r.Requirements {
			all = append(all, r.Requirements[i].ID)
		}
		return all
	}
	older, newer := ids("v1.36"), ids("v1.37")
	if slices.Contains(older, "workload_sandboxing") || len(older) != 15 {
		t.Errorf("1.36 has %v", older)
	}
	if diff := cmp.Diff(older, slices.DeleteFunc(slices.Clone(newer), func(id string) bool { return id == "workload_sandboxing" })); diff != "" || len(newer) != 16 {
		t.Errorf("1.37 differs (-1.36 +1.37):\n%s", diff)
	}
}

// TestPoolWithoutNodes: the DaemonSet of a pool that has no node yet has no pod, and is rolled out.
func TestPoolWithoutNodes(t *testing.T) {
	p := complete()
	p.DaemonSets = append(p.DaemonSets, appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kata-vfio-plugin-flex"}})
	for _, q := range fleet.JudgeConformance(p.state(), newest()).Requirements {
		if q.ID == "driver_runtime_management" && q.Result != fleet.Shown {
			t.Errorf("%s is %s (%s)", q.ID, q.Result, q.Reason)
		}
	}
}

// TestCompletePlatform: each requirement with its level and the result, in the profile's order.
func TestCompletePlatform(t *testing.T) {
	r := fleet.JudgeConformance(complete().state(), newest())
	var got []string
	for i := range r.Requirements {
		q := &r.Requirements[i]
		got = append(got, string(q.Level)+" "+q.ID+": "+string(q.Result))
		if (q.Result == fleet.NotShown) != (q.Reason != "" && q.Fix != "") || (q.Result == fleet.NotOurs) != (q.Provider != "") || q.Checked == "" || len(q.Commands) == 0 {
			t.Errorf("%s is incomplete: %+v", q.ID, q)
		}
	}
	want := []string{
		"SHOULD driver_runtime_management: shown", "SHOULD gpu_sharing: not shown", "SHOULD virtualized_accelerator: not shown",
		"MUST ai_inference: not ours", "SHOULD advanced_inference_ingress: not ours", "SHOULD high_performance_networking: shown", "SHOULD disaggregated_inference: not ours",
		"MUST gang_scheduling: shown", "MUST cluster_autoscaling: shown", "MUST pod_autoscaling: shown",
		"MUST accelerator_metrics: shown", "MUST ai_service_metrics: not ours", "MUST secure_accelerator_access: shown", "SHOULD workload_sandboxing: shown", "MUST robust_controller: not ours", "MUST dra_support: shown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lacking := r.Lacking(fleet.Must); len(lacking) > 0 {
		t.Errorf("not shown: %v", lacking)
	}
}

// TestSlicesOfGPUs: a VF of a GPU is a shared GPU and a virtualized accelerator, once a pod runs with it.
func TestSlicesOfGPUs(t *testing.T) {
	slice := resourceapi.Device{Name: "gpuvf-0000-3b-00-4", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: new("gpuvf")}}}
	for name, c := range map[string]struct {
		claimed bool
		want    fleet.Result
		reason  string
	}{
		"a pod has one": {claimed: true, want: fleet.Shown},
		"no pod":        {want: fleet.NotShown, reason: "no pod with a VF of a GPU runs"},
	} {
		p := complete()
		p.Fleet.Slices = append(p.Fleet.Slices, publishedSlice("worker-1/kata-vfio.dev/slices", slice))
		if c.claimed {
			p.Fleet.Claims = append(p.Fleet.Claims, claimOf("slice", "worker-1/kata-vfio.dev/slices", slice.Name))
			p.Fleet.Pods = append(p.Fleet.Pods, pod("render", "slice"))
		}
		seen := 0
		for _, q := range fleet.JudgeConformance(p.state(), newest()).Requirements {
			if q.ID != "gpu_sharing" && q.ID != "virtualized_accelerator" {
				continue
			}
			seen++
			if q.Result != c.want || q.Reason != c.reason || !strings.HasPrefix(strings.Join(q.Evidence, "; "), "1 VF of a GPU on 1 node; ") {
				t.Errorf("%s: %s: got %s (%s) with %q; want %s (%s)", name, q.ID, q.Result, q.Reason, q.Evidence, c.want, c.reason)
			}
		}
		if seen != 2 {
			t.Errorf("%s: got %d requirements, want 2", name, seen)
		}
	}
}

// TestEmptyCluster shows nothing, and says of each what to do. What the current profile lacks is not counted.
func TestEmptyCluster(t *testing.T) {
	r := fleet.JudgeConformance((&platform{Fleet: &objects{}}).state(), newest())
	for i := range r.Requirements {
		if q := &r.Requirements[i]; q.Result == fleet.Shown || q.Result == fleet.NotShown && (q.Reason == "" || q.Fix == "") {
			t.Errorf("%s: %s: %q, %q", q.ID, q.Result, q.Reason, q.Fix)
		}
	}
	want := []string{"gang_scheduling", "cluster_autoscaling", "pod_autoscaling", "accelerator_metrics", "secure_accelerator_access"}
	if diff := cmp.Diff(want, r.Lacking(fleet.Must)); diff != "" {
		t.Errorf("lacking (-want +got):\n%s", diff)
	}
}

// TestNotShown changes one thing of the complete platform. The requirement that rests on it is not shown, and says why.
func TestNotShown(t *testing.T) {
	type state = platform
	for name, c := range map[string]struct {
		change     func(*state)
		id, reason string
	}{
		"an API less":            {func(s *state) { s.APIs = s.APIs[1:] }, "dra_support", "does not serve all of resource.k8s.io"},
		"no device":              {func(s *state) { s.Fleet.Slices = nil }, "dra_support", "no node publishes a device"},
		"no class":               {func(s *state) { s.DeviceClasses = s.DeviceClasses[1:] }, "dra_support", "there is no DeviceClass of kata-vfio"},
		"no GPU":                 {func(s *state) { s.Fleet.Slices = s.Fleet.Slices[1:] }, "driver_runtime_management", "no node publishes a GPU"},
		"no DaemonSet":           {func(s *state) { s.DaemonSets = nil }, "driver_runtime_management", "no DaemonSet of the plugin runs on a node"},
		"an old plugin":          {func(s *state) { s.DaemonSets[0].Status.UpdatedNumberScheduled = 0 }, "driver_runtime_management", "not rolled out"},
		"a rollout not seen":     {func(s *state) { s.DaemonSets[0].Generation++ }, "driver_runtime_management", "not rolled out"},
		"no node":                {func(s *state) { s.DaemonSets[0].Status = appsv1.DaemonSetStatus{ObservedGeneration: 2} }, "driver_runtime_management", "no DaemonSet of the plugin runs on a node"},
		"no version of Kata":     {func(s *state) { delete(s.Fleet.Slices[0].Spec.Devices[0].Attributes, "kataVersion") }, "driver_runtime_management", "version on worker-1"},
		"no nodes":               {func(s *state) { s.Missing[fleet.Nodes] = "it is not permitted" }, "driver_runtime_management", "nodes could not be listed: it is not permitted"},
		"VFs without attributes": {func(s *state) { s.Fleet.Slices[1].Spec.Devices[0].Attributes = nil }, "high_performance_networking", "no node publishes a NIC"},
		"no pod with a NIC":      {func(s *state) { s.Fleet.Pods = s.Fleet.Pods[:1] }, "high_performance_networking", "no pod with a NIC runs"},
		"no API of groups":       {func(s *state) { s.APIs = nil }, "gang_scheduling", "no API for groups of pods"},
		"pods of no queue":       {func(s *state) { s.Fleet.Pods[0].Labels, s.Fleet.Pods[1].Labels = nil, nil }, "gang_scheduling", "no running pod with a device belongs to a group"},
		"no discovery":           {func(s *state) { s.Missing[fleet.APIs] = "timeout" }, "gang_scheduling", "APIs could not be listed: timeout"},
		"another's scale-up":     {func(s *state) { s.Fleet.Events[0].InvolvedObject.Namespace = "other" }, "cluster_autoscaling", "no Event says"},
		"another driver's pod": {func(s *state) {
			s.Fleet.Claims[0].Status = resourceapi.ResourceClaimStatus{}
		}, "cluster_autoscaling", "no Event says"},
		"a scale-up for a NIC": {func(s *state) { s.Fleet.Events[0].InvolvedObject.Name = "relay" }, "cluster_autoscaling", "no Event says"},
		"a NIC's pod that is pending": {func(s *state) {
			pending(s, 1, "vf.kata-vfio.dev")
			s.Fleet.Events[0].InvolvedObject.Name = "relay"
		}, "cluster_autoscaling", "no Event says"},
		"another driver's GPU":        {func(s *state) { pending(s, 0, "gpu.example.com") }, "cluster_autoscaling", "no Event says"},
		"another event":               {func(s *state) { s.Fleet.Events[0].Reason = "NotTriggerScaleUp" }, "cluster_autoscaling", "no Event says"},
		"no custom metrics":           {func(s *state) { s.APIs = s.APIs[:4] }, "pod_autoscaling", "no custom or external metrics"},
		"a passive autoscaler":        {func(s *state) { s.Autoscalers[0].Status.Conditions[0].Status = corev1.ConditionFalse }, "pod_autoscaling", "no active HorizontalPodAutoscaler"},
		"another's autoscaler":        {func(s *state) { s.Autoscalers[0].Spec.ScaleTargetRef.Name = "tra" }, "pod_autoscaling", "no active HorizontalPodAutoscaler"},
		"another namespace":           {func(s *state) { s.Autoscalers[0].Namespace = "team-b" }, "pod_autoscaling", "no active HorizontalPodAutoscaler"},
		"no exporter":                 {func(s *state) { s.Fleet.Pods[0].Spec.Containers[0].Ports = nil }, "accelerator_metrics", "no running pod with a GPU serves metrics"},
		"a port of another name":      {func(s *state) { s.Fleet.Pods[0].Spec.Containers[0].Ports[0].Name = "no-metrics" }, "accelerator_metrics", "no running pod with a GPU serves metrics"},
		"pods that ended":             {func(s *state) { s.Fleet.Pods[0].Status.Phase = corev1.PodSucceeded }, "accelerator_metrics", "no running pod with a GPU serves metrics"},
		"a claim not isolated":        {func(s *state) { condition(s, 1).Status = metav1.ConditionFalse }, "secure_accelerator_access", "team-a/gpu (weakened)"},
		"a claim not reset":           {func(s *state) { condition(s, 2).Status = metav1.ConditionUnknown }, "secure_accelerator_access", "team-a/gpu (weakened)"},
		"a claim not ready":           {func(s *state) { condition(s, 0).Status = metav1.ConditionFalse }, "secure_accelerator_access", "team-a/gpu (refused)"},
		"no claim":                    {func(s *state) { s.Fleet.Claims = nil }, "secure_accelerator_access", "no claim has a device"},
		"claims not listed":           {func(s *state) { s.Fleet.Missing = map[fleet.Kind]string{fleet.Claims: "x"} }, "secure_accelerator_access", "resourceclaims could not be listed: x"},
		"a policy less":               {func(s *state) { s.Policies = s.Policies[1:] }, "secure_accelerator_access", "policies do not deny: tenant-pods.kata-vfio.dev"},
		"a policy that audits":        {func(s *state) { s.Bindings[5].Spec.ValidationActions = nil }, "secure_accelerator_access", "policies do not deny: slices.kata-vfio.dev"},
		"no pod":                      {func(s *state) { s.Fleet.Pods = nil }, "secure_accelerator_access", "no pod with a device runs"},
		"a pod without a VM":          {func(s *state) { s.Fleet.Pods[0].Spec.RuntimeClassName = nil }, "secure_accelerator_access", "without a RuntimeClass: team-a/train"},
		"a pod without NRI":           {func(s *state) { s.Fleet.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins] = "kata-vfio-2" }, "secure_accelerator_access", "does not require the NRI plugin for team-a/train"},
		"no audit":                    {func(s *state) { s.Audit = nil }, "secure_accelerator_access", "is not given"},
		"a pod in no sandbox":         {func(s *state) { s.Fleet.Pods[0].Spec.RuntimeClassName = nil }, "workload_sandboxing", "no RuntimeClass that exists: team-a/train"},
		"a class that is gone":        {func(s *state) { s.Runtimes = nil }, "workload_sandboxing", "no RuntimeClass that exists: team-a/train, team-a/relay"},
		"classes not listed":          {func(s *state) { s.Missing[fleet.Runtimes] = "x" }, "workload_sandboxing", "runtimeclasses could not be listed: x"},
		"a pod in the node's network": {func(s *state) { s.Fleet.Pods[0].Spec.HostNetwork = true }, "workload_sandboxing", "with their node, or have a privileged container: team-a/train"},
		"a pod among its processes":   {func(s *state) { s.Fleet.Pods[0].Spec.HostPID = true }, "workload_sandboxing", "with their node, or have a privileged container: team-a/train"},
		"a pod with its IPC":          {func(s *state) { s.Fleet.Pods[0].Spec.HostIPC = true }, "workload_sandboxing", "with their node, or have a privileged container: team-a/train"},
		"a pod with its directory": {func(s *state) {
			s.Fleet.Pods[0].Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}}
		}, "workload_sandboxing", "with their node, or have a privileged container: team-a/train"},
		"a privileged container": {func(s *state) {
			s.Fleet.Pods[1].Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "workload_sandboxing", "with their node, or have a privileged container: team-a/relay"},
		"a debugger without NRI": {func(s *state) {
			s.Fleet.Pods[0].Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
			s.Fleet.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins+"/container.debug"] = "[]"
		}, "secure_accelerator_access", "does not require the NRI plugin for team-a/train"},
		"a privileged debugger": {func(s *state) {
			s.Fleet.Pods[1].Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}}
		}, "workload_sandboxing", "with their node, or have a privileged container: team-a/relay"},
		"nobody in a sandbox":    {func(s *state) { s.Fleet.Pods = nil }, "workload_sandboxing", "no pod with a device runs"},
		"no policy for tenants":  {func(s *state) { s.Bindings = s.Bindings[1:] }, "workload_sandboxing", "tenant-pods.kata-vfio.dev does not deny"},
		"a failed audit":         {func(s *state) { s.Audit.Findings[1].State = finding.Fail }, "secure_accelerator_access", "fails: K8S-001"},
		"an audit without tries": {func(s *state) { s.Audit.Findings[1].State = finding.Unknown }, "secure_accelerator_access", "have no answer: K8S-001"},
	} {
		t.Run(name, func(t *testing.T) {
			s := complete()
			c.change(s)
			q := of(t, fleet.JudgeConformance(s.state(), newest()), c.id)
			if q.Result != fleet.NotShown || !strings.Contains(q.Reason, c.reason) || q.Fix == "" {
				t.Errorf("%s is %s: %q, %q; want %q", c.id, q.Result, q.Reason, q.Fix, c.reason)
			}
		})
	}
}

// pending makes a pod and its claim wait for a device of a class.
func pending(s *platform, i int, class string) {
	s.Fleet.Pods[i].Status.Phase, s.Fleet.Claims[i].Status = corev1.PodPending, resourceapi.ResourceClaimStatus{}
	s.Fleet.Claims[i].Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "device", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}}
}

// condition is one of the GPU's claim: Ready, Isolated, Reset.
func condition(s *platform, i int) *metav1.Condition {
	return &s.Fleet.Claims[0].Status.Devices[0].Conditions[i]
}

// TestOtherWays: what shows the same.
func TestOtherWays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*platform)
		id     string
	}{
		"a PodGroup": {func(s *platform) {
			s.APIs = append(s.APIs[:4], fleet.API{Group: "scheduling.k8s.io", Resource: "podgroups"})
			s.Fleet.Pods[0].Labels, s.Fleet.Pods[0].Spec.SchedulingGroup = nil, &corev1.PodSchedulingGroup{}
		}, "gang_scheduling"},
		"Karpenter":                {func(s *platform) { s.Fleet.Events[0].Reason = "Nominated" }, "cluster_autoscaling"},
		"a scale-up while pending": {func(s *platform) { pending(s, 0, "gpu.kata-vfio.dev") }, "cluster_autoscaling"},
		"a scale-up for a choice": {func(s *platform) {
			pending(s, 0, "vf.kata-vfio.dev")
			choice := []resourceapi.DeviceSubRequest{{DeviceClassName: "pf.kata-vfio.dev"}, {DeviceClassName: "gpu-x2.kata-vfio.dev"}}
			s.Fleet.Claims[0].Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "any", FirstAvailable: choice}}
		}, "cluster_autoscaling"},
		"external metrics": {func(s *platform) { s.APIs = append(s.APIs, fleet.API{Group: "external.metrics.k8s.io"}) }, "pod_autoscaling"},
		"a StatefulSet": {func(s *platform) {
			s.Fleet.Pods[0].OwnerReferences[0] = metav1.OwnerReference{Kind: "StatefulSet", Name: "db-1"}
			s.Autoscalers[0].Spec.ScaleTargetRef.Kind, s.Autoscalers[0].Spec.ScaleTargetRef.Name = "StatefulSet", "db-1"
		}, "pod_autoscaling"},
		"an annotation": {func(s *platform) {
			s.Fleet.Pods[0].Spec.Containers[0].Ports = nil
			s.Fleet.Pods[0].Annotations["prometheus.io/scrape"] = "true"
		}, "accelerator_metrics"},
		"two plugins": {func(s *platform) {
			s.Fleet.Pods[0].Annotations[v1alpha1.AnnotationRequiredPlugins] = `["other", "kata-vfio"]`
		}, "secure_accelerator_access"},
		"a claim of a template": {func(s *platform) {
			s.Fleet.Pods[0].Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "device", ResourceClaimName: s.Fleet.Pods[0].Spec.ResourceClaims[0].ResourceClaimName}}
			s.Fleet.Pods[0].Spec.ResourceClaims[0].ResourceClaimName = nil
		}, "accelerator_metrics"},
		"another driver's claim": {func(s *platform) {
			other := claimOf("other", "worker-1", "gpu-0")
			other.Status.Allocation.Devices.Results[0].Driver, other.Status.Devices = "gpu.example.com", nil
			s.Fleet.Claims = append(s.Fleet.Claims, other)
		}, "secure_accelerator_access"},
		"a node without GPUs": {func(s *platform) {
			second := slice("worker-2/pf-0000-5e-00-0", vf())
			second.Spec.NodeName = new("worker-2")
			s.Fleet.Slices = append(s.Fleet.Slices, second)
		}, "driver_runtime_management"},
	} {
		t.Run(name, func(t *testing.T) {
			s := complete()
			c.change(s)
			if q := of(t, fleet.JudgeConformance(s.state(), newest()), c.id); q.Result != fleet.Shown {
				t.Errorf("%s is %s: %s", c.id, q.Result, q.Reason)
			}
		})
	}
}

// TestEvidenceNamesWhatIsThere: objects, counts, versions.
func TestEvidenceNamesWhatIsThere(t *testing.T) {
	s := complete()
	s.Fleet.Slices[0].Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "kata-vfio.dev/fatal-errors", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	r := fleet.JudgeConformance(s.state(), newest())
	for id, want := range map[string]string{
		"dra_support":                 "published: 2 devices of kata-vfio.dev on 1 node",
		"driver_runtime_management":   "1 node: plugin 0.1.0, Kata 4.1.0, containerd://2.4.2, kernel 6.12.0, GPUs on vfio-pci",
		"high_performance_networking": "1 device: vf with pfInterface, portSpeed, rdma, pcieRoot, numaNode",
		"gang_scheduling":             "2 running pods with devices in a group or queue: team-a/train, team-a/relay",
		"cluster_autoscaling":         "nodes added for pods with claims for GPUs: team-a/train (TriggeredScaleUp)",
		"pod_autoscaling":             "active autoscalers of pods with devices: team-a/train",
		"accelerator_metrics":         "1 GPU: PCIe link speed known of 1; 1 quarantined, dead, with a lost link or fatal AER errors",
		"secure_accelerator_access":   "2 claims: Ready,Isolated,Reset",
		"workload_sandboxing":         "2 running pods: RuntimeClass kata-gpu, handler kata-vm",
	} {
		if q := of(t, r, id); !slices.Contains(q.Evidence, want) {
			t.Errorf("%s: %q lacks %q", id, q.Evidence, want)
		}
	}
}

// TestEvidenceCountsBrokenGPUs: a taint by which an operator, the node or the audit keeps claims away says nothing about the hardware. A GPU
// that is published in a pair, too, counts once.
func TestEvidenceCountsBrokenGPUs(t *testing.T) {
	for key, broken := range map[string]int{
		"quarantined": 1, "dead": 1, "link-lost": 1, "fatal-errors": 1,
		"drain": 0, "not-isolated": 0, "not-preparable": 0, "node-not-ready": 0, "withdrawn": 0, "audit": 0, "twin-in-use": 0, "sanitizing": 0, "tenant": 0,
	} {
		s, pair := complete(), publishedGPU()
		pair.Name, pair.Attributes["type"] = pair.Name+"-vf-0000-3e-00-2", resourceapi.DeviceAttribute{StringValue: new("gpu-vf")}
		s.Fleet.Slices[0].Spec.Devices = append(s.Fleet.Slices[0].Spec.Devices, pair)
		for i := range s.Fleet.Slices[0].Spec.Devices {
			s.Fleet.Slices[0].Spec.Devices[i].Taints = []resourceapi.DeviceTaint{taint(driver+"/"+key, "x")}
		}
		want := fmt.Sprintf("1 GPU: PCIe link speed known of 1; %d quarantined, dead, with a lost link or fatal AER errors", broken)
		if q := of(t, fleet.JudgeConformance(s.state(), newest()), "accelerator_metrics"); !slices.Contains(q.Evidence, want) {
			t.Errorf("%s: %q lacks %q", key, q.Evidence, want)
		}
	}
}
