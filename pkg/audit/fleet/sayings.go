package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// saying is a part of a message of Kubernetes, the container runtime or Kata that has no code, and the fix.
type saying struct{ part, fix string }

// noAgent is the fix for a VM that did not answer, which each of Kata's runtimes reports in its own words.
const noAgent = "the VM did not answer in Kata's time, which is 45 s (Go runtime) or 10 s (Rust) with Kata's NIC base and 1200 s with its GPU base: QEMU ended, mostly out of memory, or " +
	"the guest boots too slowly. Check the RuntimeClass's overhead (memory and one CPU); the node's log has QEMU's reason"

// sayings returns the messages in the runbook's tables. The first one that a message contains applies.
func sayings() []saying {
	return []saying{
		{"failed to inject devices after CDI timeout", "the guest image has no CDI specification for the device. Ask the cluster's admin for a guest image with the vendor's driver (runtimeclass/README.md, GPUs by vendor)"},
		{"pod-resources.sock", "the plugin does not run on the node. Ask the cluster's admin: \"Plugin is down\" in the runbook"},
		{"the calling process is not visible", "the plugin can't see Kata's process. Ask the cluster's admin to restore `hostPID: true` in the DaemonSet kata-vfio-plugin"},
		{"the devices that it should have are unknown", "the kubelet did not answer. It tries again; if that lasts, the cluster's admin finds the reason in the kubelet's log"},
		{`required plugin "kata-vfio" not present`, "the container runtime does not call the plugin. Ask the cluster's admin: \"Container runtime does not call the plugin\" in the runbook"},
		{"exiting QMP loop", "QEMU ended while the VM started. Mostly the node or the pod's memory limit was exceeded: the RuntimeClass's overhead must cover the VM. The node's log has QEMU's reason. If each try ends at once, the kernel may be too old for QEMU (runtimeclass/README.md, Kernel and QEMU)"},
		{"connecting to vsock", noAgent},
		{"vsock: failed to connect to", noAgent},
		{"dial_timeout", "the VM boots too slowly within the pod's CPU limit. Keep the RuntimeClass's overhead of one CPU"},
		{"no runtime for", "the node's container runtime lacks the RuntimeClass's handler. Ask the cluster's admin to install Kata there, or to set the RuntimeClass's nodeSelector"},
	}
}

// sayingIn returns the fix for a message; empty if it has no known text.
func sayingIn(message string) string {
	all := sayings()
	if i := slices.IndexFunc(all, func(s saying) bool { return strings.Contains(message, s.part) }); i >= 0 {
		return all[i].fix
	}
	return ""
}

// missingClass returns the fix for a message that a DeviceClass does not exist. It names the existing classes, if they were listed.
func (e *explaining) missingClass(message string) string {
	_, after, found := strings.Cut(message, "device class ")
	name, _, ends := strings.Cut(after, " does not exist")
	if !found || !ends {
		return ""
	}
	var names []string
	for _, c := range e.state.Cluster.OurClasses() {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("correct deviceClassName: there is no DeviceClass %s. `kubectl get deviceclasses` lists those that exist", name)
	}
	return fmt.Sprintf("correct deviceClassName: there is no DeviceClass %s. Those of kata-vfio are %s", name, strings.Join(names, ", "))
}
