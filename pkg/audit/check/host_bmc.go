package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func bmcChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-019", Title: "No tenant's pod has the BMC's host interface", Severity: isolation.Medium,
			Why: "by /dev/ipmi0 the BMC is told to make users and take firmware, without a password: what a tenant leaves there outlives every reinstallation of the node " +
				"(a BMC with a network interface to its host is not looked at)",
			Fix: "delete the pod and refuse privileged pods and device nodes in tenants' namespaces; `chmod 600 /dev/ipmi*`; where nothing on the node needs it, " +
				"keep ipmi_devintf from loading by modprobe.d",
			Verify:  "ls -l /dev/ipmi*; jq -r '.linux.devices[]?.path' /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json | grep ipmi",
			Sources: []string{"Eclypsium: Cloudborne (2019)", "Linux: Documentation/driver-api/ipmi.rst"},
		}, Judge: bmcUnreachable},
	}
}

// bmcUnreachable looks at the nodes of the interface, and at containers in namespaces
// that have devices.
func bmcUnreachable(n *facts.Node) []finding.Finding {
	names, class := n.List("sys/class/ipmi")
	switch {
	case !class.Known():
		return unknown("whether the node has a BMC's interface", class)
	case len(names) == 0:
		return notApplicable("no interface to a BMC is open on the node", class)
	}
	containers, listed := runtimes.Containers(n)
	found := openInterfaces(n, names)
	for i := range containers {
		c := &containers[i]
		devices := devicesIn(n, c.Namespace)
		source := reachesBMC(n, c, names)
		if len(devices) == 0 || source == "" {
			continue
		}
		f := fail(fmt.Sprintf("a container of pod %s/%s has %q, and so the BMC", c.Namespace, c.Pod, source),
			facts.Fact{Path: c.Bundle, Value: source, How: "read"}, class)
		f[0].Object, f[0].Devices = fmt.Sprintf("pod %s/%s", c.Namespace, c.Pod), devices
		found = append(found, f...)
	}
	if hidden := hiddenBundles(listed); len(hidden) > 0 {
		found = append(found, unknown("what tenants' containers have of the node", hidden...)...)
	}
	if len(found) > 0 {
		return found
	}
	return pass("root of the node alone has the BMC", class)
}

// openInterfaces says which nodes others than root may open.
func openInterfaces(n *facts.Node, names []string) []finding.Finding {
	var found []finding.Finding
	for _, name := range names {
		stat, fact := n.Stat("dev/" + name)
		if who := stat.Writers(); fact.OK() && who != "" {
			f := fail(fmt.Sprintf("/dev/%s is not root's alone: %s", name, who), fact)
			f[0].Object = "/dev/" + name
			found = append(found, f...)
		}
	}
	return found
}

// reachesBMC returns what of a container leads to the interface.
func reachesBMC(n *facts.Node, c *runtimes.Container, names []string) string {
	for _, name := range names {
		node := "/dev/" + name
		if slices.Contains(c.Devices, node) {
			return node
		}
		for _, source := range c.Mounts {
			if strings.HasPrefix(node+"/", strings.TrimSuffix("/"+n.Real(source), "/")+"/") {
				return source
			}
		}
	}
	return ""
}
