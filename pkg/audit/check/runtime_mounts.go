package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// runtimeMountChecks are about what tenants' containers have of the node.
func runtimeMountChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-027", Title: "No tenant's pod has a socket of the node's runtimes", Severity: isolation.Critical,
			Why: "whoever speaks to containerd, CRI-O or NRI runs what it likes on the node as root, and the kubelet's and the plugin's sockets tell which " +
				"pod has which device",
			Fix:     "delete the pod, and refuse hostPath volumes in tenants' namespaces: Pod Security `baseline` or better, or the chart's policy for tenants' pods",
			Verify:  "jq -r '.mounts[].source' /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json | sort | uniq -c",
			Sources: []string{"Kubernetes: Pod Security Standards, baseline: HostPath Volumes"},
		}, Judge: tenantMounts},
	}
}

// sockets are what no tenant may have, nor any directory above.
func sockets(n *facts.Node) []string {
	all := []string{
		"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock", "/run/docker.sock",
		"/var/lib/kubelet/pod-resources/kubelet.sock", "/var/lib/kubelet/plugins_registry", ourSocket,
	}
	if nri := runtimes.Of(n).NRI; nri != nil {
		all = append(all, nri.SocketPath())
	}
	return all
}

// tenantMounts looks at the containers in namespaces that have devices.
func tenantMounts(n *facts.Node) []finding.Finding {
	if len(n.Tenancies) == 0 {
		return notApplicable("no tenant has a device")
	}
	containers, listed := runtimes.Containers(n)
	var found []finding.Finding
	var looked []runtimes.Container
	for _, c := range containers {
		devices := devicesIn(n, c.Namespace)
		if len(devices) == 0 {
			continue
		}
		looked = append(looked, c)
		for _, source := range c.Mounts {
			if socket := socketBelow(n, source); socket != "" {
				f := fail(fmt.Sprintf("a container of pod %s/%s has %q of the node, and so %s", c.Namespace, c.Pod, source, socket),
					facts.Fact{Path: c.Bundle, Value: source, How: "read"})
				f[0].Object, f[0].Devices = fmt.Sprintf("pod %s/%s", c.Namespace, c.Pod), devices
				found = append(found, f...)
			}
		}
	}
	if hidden := hiddenBundles(listed); len(found) == 0 && len(hidden) > 0 {
		return unknown("what tenants' containers have of the node", hidden...)
	}
	if len(found) > 0 {
		return found
	}
	return showing(pass(count(len(looked), "container")+" of tenants"), looked, func(c runtimes.Container) []facts.Fact {
		return []facts.Fact{{Path: c.Bundle, Value: strings.Join(c.Mounts, " "), How: "read"}}
	})
}

// hiddenBundles returns what was asked for containers where that does not show all of
// them, those that were not to be had first; nothing where it does.
func hiddenBundles(listed []facts.Fact) []facts.Fact {
	hidden := slices.DeleteFunc(slices.Clone(listed), facts.Fact.Known)
	if len(hidden) > 0 || !slices.ContainsFunc(listed, facts.Fact.OK) {
		return append(hidden, listed...)
	}
	return nil
}

// socketBelow returns the socket that a mount of the node gives a container.
func socketBelow(n *facts.Node, source string) string {
	source = n.Real(source)
	for _, socket := range sockets(n) {
		if strings.HasPrefix(n.Real(socket)+"/", source+"/") || source == "" {
			return socket
		}
	}
	return ""
}

// devicesIn returns the functions that the namespace's claims hold.
func devicesIn(n *facts.Node, namespace string) []pci.Address {
	var devices []pci.Address
	for _, t := range n.Tenancies {
		if t.Tenant() == namespace && !slices.Contains(devices, t.Address) {
			devices = append(devices, t.Address)
		}
	}
	return devices
}
