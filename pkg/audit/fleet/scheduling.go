package fleet

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func scheduling() []requirement {
	return []requirement{
		{
			entry: Requirement{
				ID: "gang_scheduling", Level: Must,
				Checked: "The API server serves an API for groups of pods (Kueue, PodGroup, Volcano), and a running pod with a device belongs to a group or a queue.",
				Commands: []Command{
					{"kubectl api-resources --api-group=kueue.x-k8s.io -o name", "...\nworkloads.kueue.x-k8s.io\n..."},
					{"kubectl apply -f deploy/examples/queue", "..."},
					{"kubectl get workloads.kueue.x-k8s.io -A", "NAMESPACE NAME QUEUE RESERVED IN ADMITTED FINISHED AGE\n..."},
				},
			}, needs: []string{string(Slices), string(Claims), string(Pods), APIs}, judge: gangs,
		},
		{
			entry: Requirement{
				ID: "cluster_autoscaling", Level: Must,
				Checked: "An autoscaler reports that it adds a node for a pod with a claim for a GPU (Event TriggeredScaleUp or Nominated): " +
					"the claim has a GPU, a slice or a partition of GPUs, or waits for a DeviceClass of kata-vfio with gpu in its name. Events last for an hour.",
				Commands: []Command{
					{"kubectl get events -A --field-selector reason=TriggeredScaleUp", "NAMESPACE LAST SEEN TYPE REASON OBJECT MESSAGE\n...\nteam-a ... Normal TriggeredScaleUp pod/train pod triggered scale-up: ...\n..."},
					{"kubectl get nodes --watch -l kata-vfio.dev/node=true", "NAME STATUS ROLES AGE VERSION\n..."},
				},
			}, needs: []string{string(Slices), string(Claims), string(Pods), string(Events), APIs}, judge: scaleUps,
		},
		{
			entry: Requirement{
				ID: "pod_autoscaling", Level: Must,
				Checked: "The API server serves custom or external metrics, and an active HorizontalPodAutoscaler scales pods with devices.",
				Commands: []Command{
					{"kubectl get apiservices v1beta2.custom.metrics.k8s.io v1beta1.external.metrics.k8s.io --ignore-not-found", "NAME SERVICE AVAILABLE AGE\n... True ...\n..."},
					{"kubectl get horizontalpodautoscalers -A", "NAMESPACE NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE\n..."},
				},
			}, needs: []string{string(Slices), string(Claims), string(Pods), APIs, Autoscalers}, judge: podScaling,
		},
	}
}

// groupAPIs are the APIs of groups of pods that are scheduled together, or not at all.
func groupAPIs() []API {
	return []API{
		{"kueue.x-k8s.io", "workloads"}, {"scheduling.k8s.io", "podgroups"}, {"scheduling.volcano.sh", "podgroups"}, {"scheduling.x-k8s.io", "podgroups"},
	}
}

// groupLabels are the labels of pods that belong to a group or a queue.
func groupLabels() []string {
	return []string{"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group", "scheduling.volcano.sh/queue-name"}
}

func inGroup(p *corev1.Pod) bool {
	return p.Spec.SchedulingGroup != nil || p.Annotations["scheduling.k8s.io/group-name"] != "" ||
		slices.ContainsFunc(groupLabels(), func(label string) bool { return p.Labels[label] != "" })
}

func gangs(s *ConformanceState) observation {
	served := s.serves(groupAPIs()...)
	pods := slices.DeleteFunc(s.holders(every), func(p *corev1.Pod) bool { return !inGroup(p) })
	o := observation{evidence: []string{"served: " + orNone(served), output.Count(len(pods), "running pod") + " with devices in a group or queue: " + orNone(podNames(pods))}}
	switch {
	case len(served) == 0:
		o.reason = "the API server serves no API for groups of pods"
		o.fix = "install Kueue, and apply deploy/examples/queue"
	case len(pods) == 0:
		o.reason, o.fix = "no running pod with a device belongs to a group or a queue", "start a Job of deploy/examples/queue"
	}
	return o
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return list(names)
}

// scalers are the APIs of autoscalers that are extensions. Others are seen by their Events only.
func scalers() []API {
	return []API{{Group: "karpenter.sh"}, {Group: "cluster.x-k8s.io"}, {"autoscaling.x-k8s.io", "provisioningrequests"}}
}

// scaleUps looks for nodes that were added for pods with claims for GPUs: by the cluster autoscaler
// (processors/status/eventing_scale_up_processor.go) or Karpenter (pkg/controllers/provisioning/scheduling/events.go).
func scaleUps(s *ConformanceState) observation {
	claimants := map[string]bool{}
	for _, p := range s.users(s.isForGPU) {
		claimants[p.Namespace+"/"+p.Name] = true
	}
	var found []string
	for i := range s.Fleet.Events {
		e := &s.Fleet.Events[i]
		if e.InvolvedObject.Kind != "Pod" || e.Reason != "TriggeredScaleUp" && e.Reason != "Nominated" {
			continue
		}
		if name := e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name; claimants[name] {
			found = append(found, name+" ("+e.Reason+")")
		}
	}
	gpus := s.gpus()
	o := observation{evidence: []string{
		"served: " + orNone(s.serves(scalers()...)),
		fmt.Sprintf("published: %s on %s, from whose slices an autoscaler simulates a new node", output.Count(len(gpus), "GPU"), output.Count(len(nodes(gpus)), "node")),
		"nodes added for pods with claims for GPUs: " + orNone(found),
	}}
	if len(found) == 0 {
		o.reason = "no Event says that an autoscaler adds a node for a pod with a claim for a GPU"
		o.fix = "answer N/A if the platform has no autoscaler; otherwise start more pods with GPUs than there are GPUs, and run the command again within the hour. " +
			"Claims may select by type, vendor, model and numaNode, not by address or driver"
	}
	return o
}

// podScaling looks for an active autoscaler of pods with devices.
func podScaling(s *ConformanceState) observation {
	served := s.serves(API{Group: "custom.metrics.k8s.io"}, API{Group: "external.metrics.k8s.io"})
	pods := map[string][]*corev1.Pod{}
	for _, p := range s.holders(every) {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	var active []string
	for i := range s.Autoscalers {
		a := &s.Autoscalers[i]
		if isActive(a) && slices.ContainsFunc(pods[a.Namespace], func(p *corev1.Pod) bool { return isTarget(a, p) }) {
			active = append(active, a.Namespace+"/"+a.Name)
		}
	}
	o := observation{evidence: []string{"served: " + orNone(served), "active autoscalers of pods with devices: " + orNone(active)}}
	switch {
	case len(served) == 0:
		o.reason = "the API server serves no custom or external metrics"
		o.fix = "install an adapter, such as prometheus-adapter or KEDA, for a metric that the guest's exporter or the application serves"
	case len(active) == 0:
		o.reason = "no active HorizontalPodAutoscaler scales pods with devices"
		o.fix = "create one for a Deployment whose pods claim a GPU by a ResourceClaimTemplate"
	}
	return o
}

// isActive reports whether the autoscaler computes replicas from metrics.
func isActive(a *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(a.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue
	})
}

// isTarget reports whether a pod is one of the autoscaler's: its controller is the target, or a ReplicaSet of the target, a Deployment.
func isTarget(a *autoscalingv2.HorizontalPodAutoscaler, p *corev1.Pod) bool {
	if a.Namespace != p.Namespace {
		return false
	}
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		ref, name := a.Spec.ScaleTargetRef, o.Name
		// ReplicaSets are not listed, but their names are the Deployment's with a hash.
		if ref.Kind == "Deployment" && o.Kind == "ReplicaSet" {
			if i := strings.LastIndex(name, "-"); i > 0 {
				return name[:i] == ref.Name
			}
		}
		return o.Kind == ref.Kind && name == ref.Name
	})
}
