package fleet

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// sandboxing is KAR-0020: a workload's processes, memory, file system and network are separate from the node's.
// The API shows the pods that have a VM, and that their specifications do not reach past it. Only a program in
// the pod can see its inside.
func sandboxing() requirement {
	return requirement{
		since: "v1.37",
		entry: Requirement{
			ID: "workload_sandboxing", Level: Should,
			Checked: "All running pods with devices have a RuntimeClass that exists: the plugin prepares devices only for VMs. None shares a namespace or a directory with the node, " +
				"or has a privileged container, and a policy refuses tenants' pods that would. Pods without devices are not looked at. " +
				"The API does not show what a pod sees of the node: run the commands in it, or upstream's TestWorkloadSandboxing.",
			Commands: []Command{
				{"kubectl get runtimeclasses -o custom-columns=NAME:.metadata.name,HANDLER:.handler", "NAME HANDLER\n...\nkata-gpu kata-gpu\n..."},
				{
					"kubectl get pods -A -o custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,VM:.spec.runtimeClassName,PID:.spec.hostPID,IPC:.spec.hostIPC,NETWORK:.spec.hostNetwork",
					"NAMESPACE POD VM PID IPC NETWORK\n...\nteam-a train kata-gpu <none> <none> <none>\n...",
				},
				{"kubectl get nodes -o custom-columns=NODE:.metadata.name,KERNEL:.status.nodeInfo.kernelVersion,BOOT:.status.nodeInfo.bootID", "NODE KERNEL BOOT\n..."},
				{"kubectl exec -n NAMESPACE POD -- cat /proc/version /proc/sys/kernel/random/boot_id", "..."},
				{"kubectl exec -n NAMESPACE POD -- ls -d /etc/kubernetes /var/lib/kubelet /var/log/pods", "ls: ...: No such file or directory\n..."},
			},
		},
		needs: []string{string(Slices), string(Claims), string(Pods), Runtimes, Policies, Bindings}, judge: sandboxed,
	}
}

// sandboxed judges the running pods that have devices.
func sandboxed(s *ConformanceState) observation {
	pods := s.holders(every)
	classes := map[string]int{}
	var bare, open []string
	for _, p := range pods {
		class, ok := s.runtime(p)
		if !ok {
			bare = append(bare, p.Namespace+"/"+p.Name)
		}
		if reachesNode(p) {
			open = append(open, p.Namespace+"/"+p.Name)
		}
		classes[class]++
	}
	o := observation{evidence: append(counted(classes, "running pod"),
		fmt.Sprintf("running pods with devices that share no namespace or directory with their node: %d of %d", len(pods)-len(open), len(pods)))}
	switch policy := "tenant-pods." + v1alpha1.DriverName; {
	case len(pods) == 0:
		o.reason, o.fix = "no pod with a device runs", "start a pod with a device, such as deploy/examples/gpu-pod.yaml"
	case len(bare) > 0:
		o.reason, o.fix = "pods have a device and no RuntimeClass that exists: "+list(bare), "see `kata-vfio-audit cluster`, K8S-002"
	case len(open) > 0:
		o.reason = "pods share a namespace or a directory with their node, or have a privileged container: " + list(open)
		o.fix = "remove hostPID, hostIPC, hostNetwork, hostPath volumes and privileged from them, and label their namespaces as tenants (" + v1alpha1.DriverName + "/tenant)"
	case !s.Fleet.Cluster.Denies(policy):
		o.reason, o.fix = "the admission policy "+policy+" does not deny", "install the chart with admission.tenants.enabled and admission.action=Deny"
	}
	return o
}

// runtime describes a pod's RuntimeClass, and reports whether it exists.
func (s *ConformanceState) runtime(p *corev1.Pod) (words string, ok bool) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "no RuntimeClass", false
	}
	name := *p.Spec.RuntimeClassName
	handler, ok := s.Fleet.Cluster.Handler(name)
	if !ok {
		return "RuntimeClass " + name + ", which does not exist", false
	}
	return "RuntimeClass " + name + ", handler " + handler, true
}

// reachesNode reports whether a pod's specification gives it access to its node past the sandbox.
func reachesNode(p *corev1.Pod) bool {
	return p.Spec.HostPID || p.Spec.HostIPC || p.Spec.HostNetwork ||
		slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) ||
		slices.ContainsFunc(cluster.Containers(&p.Spec), func(c corev1.Container) bool {
			return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		})
}
