package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// Kinds of objects, by their names in the API, that [State.Missing] may have beside those of package fleet.
const (
	Nodes       = "nodes"
	DaemonSets  = "daemonsets"
	Policies    = "validatingadmissionpolicies"
	Bindings    = "validatingadmissionpolicybindings"
	Autoscalers = "horizontalpodautoscalers"
	Runtimes    = "runtimeclasses"
	APIs        = "APIs"
)

// ConformanceState has the listed objects of all namespaces.
type ConformanceState struct {
	// Kubernetes is the API server's version.
	Kubernetes string
	// Fleet has the slices, claims, pods with claims, classes, policies and events.
	Fleet *State
	// APIs are the resources that the API server serves.
	APIs        []API
	Nodes       []corev1.Node
	DaemonSets  []appsv1.DaemonSet // the chart's
	Autoscalers []autoscalingv2.HorizontalPodAutoscaler
	// Audit is the report of `kata-vfio-audit cluster`; nil if it was not given.
	Audit *finding.Report
	// Missing has the reason for each kind that could not be listed, in addition to Fleet.Missing.
	Missing map[string]string
}

// API is a resource that the API server serves: "kueue.x-k8s.io", "workloads".
type API struct{ Group, Resource string }

// Lacks says which of the kinds could not be listed; empty if all were listed.
func (s *ConformanceState) Lacks(kinds []string) string {
	for _, kind := range kinds {
		if why := cmp.Or(s.Missing[kind], s.Fleet.Missing[Kind(kind)]); why != "" {
			return kind + " could not be listed: " + why
		}
	}
	return ""
}

// Expose does nothing: a requirement is about the platform, not about tenants.
func (*ConformanceState) Expose(*finding.Finding) {}

// serves returns the wanted APIs that the API server serves, in the form "podgroups.scheduling.k8s.io".
func (s *ConformanceState) serves(wanted ...API) []string {
	var served []string
	for _, api := range wanted {
		if slices.ContainsFunc(s.APIs, func(have API) bool {
			return have.Group == api.Group && (api.Resource == "" || have.Resource == api.Resource)
		}) {
			served = append(served, strings.TrimPrefix(api.Resource+"."+api.Group, "."))
		}
	}
	return served
}

// deviceKind reports whether a device is of a kind.
type deviceKind func(*Device) bool

// isGPU reports whether a device is a GPU or a pair.
func isGPU(d *Device) bool { return d.Kind == "gpu" || d.Kind == "gpu-vf" }

// isGPUSlice reports whether a device is a VF of a GPU.
func isGPUSlice(d *Device) bool { return d.Kind == "gpuvf" }

// isNIC reports whether a device is a NIC's PF or VF, or a pair, with an attribute that identifies its network.
func isNIC(d *Device) bool {
	return (d.Kind == "pf" || d.Kind == "vf" || d.Kind == "gpu-vf") && (d.Interface != "" || d.RDMA)
}

// devices returns the published devices of a kind.
func (s *ConformanceState) devices(is deviceKind) []*Device {
	var devices []*Device
	all := s.Fleet.Devices()
	for i := range all {
		if is(&all[i]) {
			devices = append(devices, &all[i])
		}
	}
	return devices
}

// gpus returns the published GPUs, each once: a GPU may be published alone and in pairs.
func (s *ConformanceState) gpus() []*Device {
	var gpus []*Device
	seen := map[[2]string]bool{}
	for _, d := range s.devices(isGPU) {
		function := [2]string{d.Node, cmp.Or(d.Address, d.Name)}
		if !seen[function] {
			seen[function] = true
			gpus = append(gpus, d)
		}
	}
	return gpus
}

// nodes returns the nodes of devices, sorted.
func nodes(devices []*Device) []string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Node)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// holders returns the running pods that have a device of a kind.
func (s *ConformanceState) holders(is deviceKind) []*corev1.Pod {
	claims := map[string]bool{}
	for _, d := range s.devices(is) {
		claims[d.Claim] = true
	}
	var running []*corev1.Pod
	for _, p := range s.users(func(c *cluster.Claim) bool { return claims[c.Name()] }) {
		// A pod that has ended may stay in status.reservedFor until its claim's controller removes it.
		if p.Status.Phase == corev1.PodRunning {
			running = append(running, p)
		}
	}
	return running
}

// isForGPU reports whether a claim has a GPU, a slice or a partition of GPUs, or waits for a DeviceClass of kata-vfio that has gpu in its
// name. What other classes give can't be told before a device is allocated, because their selectors are expressions.
func (s *ConformanceState) isForGPU(c *cluster.Claim) bool {
	if c.Object.Status.Allocation != nil {
		return slices.ContainsFunc(c.Ours(), func(a cluster.Allocated) bool {
			d := s.Fleet.row(a.ID)
			return d != nil && strings.HasPrefix(d.Kind, gpuWord)
		})
	}
	return slices.ContainsFunc(c.Object.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		return r.Exactly != nil && s.isGPUClass(r.Exactly.DeviceClassName) ||
			slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool { return s.isGPUClass(sub.DeviceClassName) })
	})
}

// gpuWord begins the kinds of whole GPUs, of pairs with one, of slices and of partitions, and is in the names of their DeviceClasses.
const gpuWord = "gpu"

func (s *ConformanceState) isGPUClass(name string) bool {
	return strings.Contains(name, gpuWord) && s.Fleet.Cluster.IsOurClass(name)
}

// users returns the pods that have one of the claims, in the order of the list.
func (s *ConformanceState) users(of func(*cluster.Claim) bool) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range s.Fleet.Cluster.Pods() {
		if slices.ContainsFunc(s.Fleet.Cluster.PodClaims(p), of) {
			pods = append(pods, p.Object)
		}
	}
	return pods
}

// every is the kind of all devices.
func every(*Device) bool { return true }

// most is the largest number of names in a text.
const most = 5

// list lists names in few words: "a, b and 7 more".
func list(names []string) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// podNames are the names of pods with their namespaces.
func podNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Namespace + "/" + p.Name
	}
	return names
}
