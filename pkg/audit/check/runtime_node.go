package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// runtimeNodeChecks are about the runtimes' files, NRI, the kubelet, and what containers have of the node.
func runtimeNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-024", Title: "Ensure that only root changes what runtimes read and run", Severity: rule.Critical,
			Why:    "Whoever writes Kata's configuration, shim, VMM, kernel or image runs code as root on the node or in every VM.",
			Fix:    "`chown root:root` and `chmod go-w` the named file or directory",
			Verify: "namei -l /etc/containerd/config.toml /opt/kata/bin/containerd-shim-kata-v2",
		}, Judge: runtimeFiles},
		{Rule: finding.Rule{
			ID: "RT-026", Title: "Ensure that NRI validates container changes and requires the plugin", Severity: rule.High,
			Why:     "An NRI plugin can give any container any device. If the plugin is absent and not required, containers start unchecked.",
			Fix:     "in containerd's NRI section: `disable = false`, `default_validator.enable = true`, no tolerate_missing_plugins_annotation; socket and plugin directory for root only. The chart's policy sets required-plugins.noderesource.dev, which requires the plugin",
			Verify:  "containerd config dump | grep -A25 io.containerd.nri.v1.nri; ls -ld /var/run/nri /var/run/nri/nri.sock /opt/nri/plugins",
			Sources: []string{"containerd 2.4: docs/NRI.md", "nri v0.12: plugins/default-validator"},
		}, Judge: nriGuards},
		{Rule: finding.Rule{
			ID: "RT-028", Title: "Ensure that the kubelet authenticates and authorizes all requests", Severity: rule.Medium,
			Why:     "Its API shows which pod has which device and can exec into tenants' pods.",
			Fix:     "in the kubelet's configuration: `readOnlyPort: 0`, `authentication.anonymous.enabled: false`, `authorization.mode: Webhook`; directory pod-resources for root only",
			Verify:  "grep -E 'readOnlyPort|anonymous|mode' -A1 /var/lib/kubelet/config.yaml; ls -ld /var/lib/kubelet/pod-resources",
			Sources: []string{"Kubernetes: KubeletConfiguration v1beta1"},
		}, Judge: kubelet},
		{Rule: finding.Rule{
			ID: "RT-027", Title: "Ensure that no tenant's pod has a socket of the node's runtimes", Severity: rule.Critical,
			Why:     "Access to containerd, CRI-O or NRI is root on the node. The kubelet's and plugin's sockets show device assignments.",
			Fix:     "delete the pod, and refuse hostPath volumes in tenants' namespaces: Pod Security `baseline` or better, or the chart's policy for tenants' pods",
			Verify:  "jq -r '.mounts[].source' /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json | sort | uniq -c",
			Sources: []string{"Kubernetes: Pod Security Standards, baseline: HostPath Volumes"},
		}, Judge: tenantMounts},
		{Rule: finding.Rule{
			ID: "RT-029", Title: "Ensure that containerd gives Kata time to end a VM without its shim", Severity: rule.Medium,
			Why:     "After 5 s by default, containerd stops the cleanup. The VM survives its pod and blocks its devices and network.",
			Fix:     "at the top level of containerd's configuration: `[timeouts]` with `\"io.containerd.timeout.shim.cleanup\" = \"60s\"`; restart containerd. `kata-vfio-bootstrap apply` sets it",
			Verify:  "containerd config dump | grep shim.cleanup",
			Sources: []string{"containerd 2.4: core/runtime/v2/shim.go cleanupAfterDeadShim", "Kata 4.1: virtcontainers/api.go CleanupContainer"},
		}, Judge: shimCleanup},
		{Rule: finding.Rule{
			ID: "RT-031", Title: "Ensure that containerd runs with the configuration that its files have", Severity: rule.High,
			Why:     "containerd reads its files only when it starts. A hardened file may have no effect yet, or hide what containerd still does.",
			Fix:     "`systemctl restart containerd` (containers keep running), then audit again",
			Verify:  "crictl info | jq '.config.containerd.runtimes, .config.cdiSpecDirs'; containerd config dump",
			Sources: []string{"containerd 2.4: internal/cri/server/status.go", "CRI: RuntimeService.Status"},
		}, Judge: restarted},
		{Rule: finding.Rule{
			ID: "RT-032", Title: "Ensure that tenants run no privileged container outside a VM", Severity: rule.Critical,
			Why:     "Outside a VM, a privileged container is root on the node and reaches every tenant's device.",
			Fix:     "delete the pod, and enforce the Pod Security Standard `baseline` in namespaces of tenants",
			Verify:  "crictl ps -o json | jq -r '.containers[].id' | xargs -n1 crictl inspect | jq '.info.runtimeType, .info.privileged'",
			Sources: []string{"Kubernetes: Pod Security Standards"},
		}, Judge: unprivileged},
	}
}

// runtimeFiles looks at each file and at each directory above it: who may write to
// one of those may put another file in its place.
func runtimeFiles(n *facts.Node) Answer {
	r := runtimes.Of(n)
	if !r.Found() {
		return notApplicable("the node has no containerd or CRI-O configuration")
	}
	paths := filesOf(n, r)
	found, _ := writable(n, paths)
	return found.or(pass(count(len(paths), "path")+" with the directories above", r.Files...))
}

// filesOf returns what the runtimes read and run, with the directories above, each
// once and sorted.
func filesOf(n *facts.Node, r *runtimes.Runtimes) []string {
	files := append(pathsOf(r.Files), pathsOf(r.Damaged)...)
	for _, h := range r.Handlers {
		files = append(files, absolute(h.Path.Text())...)
		if !h.IsKata() {
			continue
		}
		k := runtimes.KataOf(n, &h)
		files = append(append(files, pathsOf(k.Files)...), path.Join(path.Dir(k.File), "config.d"))
		for _, name := range []string{"path", "jailer_path", "virtio_fs_daemon", "kernel", "image", "initrd", "firmware"} {
			files = append(files, absolute(k.Hypervisor(name).Text())...)
		}
	}
	if r.NRI != nil {
		files = append(files, r.NRI.PluginPath())
	}
	var all []string
	for _, file := range files {
		all = append(all, n.Parents(file)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func pathsOf(seen []facts.Fact) []string {
	var paths []string
	for _, f := range seen {
		paths = append(paths, f.Path)
	}
	return paths
}

// absolute returns a path, if it is one.
func absolute(name string) []string {
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	return []string{name}
}

func nriGuards(n *facts.Node) Answer {
	r := runtimes.Of(n)
	nri, found := r.NRI, damagedRuntimes(r)
	switch {
	case len(found) > 0 && nri == nil:
		return found
	case nri == nil:
		return notApplicable("the node has no containerd or CRI-O configuration")
	case len(found) > 0:
		return append(found, nriSocket(n, nri)...) // the damaged file can have the settings
	case len(r.Kata()) == 0:
		return notApplicable("the node has no Kata handler", r.Files...)
	case !nri.Enabled:
		found = append(found, fail("NRI is off: the plugin sees no containers", nri.Switch.Fact())...)
	case !nri.Validator.On():
		found = append(found, fail("NRI's validator is off: containers start even if the plugin is absent", nri.Validator.Fact())...)
	}
	if nri.Tolerate.Text() != "" {
		text := fmt.Sprintf("pods with the annotation %s start without required plugins", nri.Tolerate.Text())
		found = append(found, fail(text, nri.Tolerate.Fact())...)
	}
	return append(found, nriSocket(n, nri)...).
		or(pass("NRI and its validator are on", says(nri.Switch, nri.Validator, nri.DisableConnections, nri.RequiredPlugins)...))
}

// nriSocket checks who may connect as a plugin. A user who may write to a directory above the socket can replace it.
func nriSocket(n *facts.Node, nri *runtimes.NRI) Answer {
	if nri.DisableConnections.On() || !nri.Enabled {
		return nil
	}
	var found Answer
	for _, name := range n.Parents(nri.SocketPath()) {
		stat, file := n.Stat(name)
		switch {
		case file.Status == facts.Absent:
		case !file.OK():
			return unknown("who can connect as an NRI plugin", file)
		default:
			found = append(found, othersMay(stat, file, "users other than root can reach NRI's socket: ")...)
		}
	}
	return found
}

func kubelet(n *facts.Node) Answer {
	k, ok := runtimes.KubeletOf(n)
	if !ok {
		return notApplicable("the node runs no kubelet")
	}
	var found Answer
	switch {
	case len(k.Damaged) > 0:
		found = unknown("the kubelet's configuration", k.Damaged...)
	case k.ReadOnlyPort != 0:
		found = fail(fmt.Sprintf("read-only port %d shows all pods to everyone", k.ReadOnlyPort), k.Seen...)
	case k.Anonymous && k.AlwaysAllow:
		found = fail("the kubelet allows everything without credentials", k.Seen...)
	case k.Anonymous:
		found = fail("the kubelet accepts requests without credentials", k.Seen...)
	case k.AlwaysAllow:
		found = fail("the kubelet allows everything with any credentials", k.Seen...)
	}
	stat, dir := n.Stat(runtimes.PodResourcesDir)
	if dir.OK() && stat.Writers() != "" {
		found = append(found, fail("users other than root can reach the directory of the pod-resources socket: "+stat.Writers(), dir)...)
	}
	return found.or(pass("no open port, no anonymous requests", k.Seen...))
}

// sockets are what no tenant may have, nor any directory above.
func sockets(n *facts.Node) []string {
	all := append(runtimes.Sockets(n), "/run/docker.sock", runtimes.PodResourcesDir+"/kubelet.sock", runtimes.KubeletPlugins, ourSocket)
	if nri := runtimes.Of(n).NRI; nri != nil {
		all = append(all, nri.SocketPath())
	}
	return all
}

// tenantMounts looks at the containers in namespaces that have devices.
func tenantMounts(n *facts.Node) Answer {
	if len(n.Tenancies) == 0 {
		return notApplicable("no tenant has a device")
	}
	containers, listed := tenantContainers(n)
	found := over(containers, func(c runtimes.Container) Answer {
		return over(c.Mounts, func(source string) Answer {
			socket := socketBelow(n, source)
			if socket == "" {
				return nil
			}
			return inContainer(n, &c, source, fmt.Sprintf("a container of pod %s/%s has the host's %q, which contains %s", c.Namespace, c.Pod, source, socket))
		})
	})
	passed := pass(count(len(containers), "container") + " of tenants")
	return showing(found.or(hiddenBundles(listed, "which host paths tenants' containers have")).or(passed), containers, func(c runtimes.Container) []facts.Fact {
		return []facts.Fact{{Path: c.Bundle, Value: strings.Join(c.Mounts, " "), How: "read"}}
	})
}

// tenantContainers returns the containers in namespaces that have devices, and the facts about all containers.
func tenantContainers(n *facts.Node) ([]runtimes.Container, []facts.Fact) {
	all, listed := runtimes.Containers(n)
	return slices.DeleteFunc(slices.Clone(all), func(c runtimes.Container) bool { return len(devicesIn(n, c.Namespace)) == 0 }), listed
}

// inContainer fails for something that a container of a tenant has.
func inContainer(n *facts.Node, c *runtimes.Container, has, text string) Answer {
	return fail(text, facts.Fact{Path: c.Bundle, Value: has, How: "read"}).
		object(fmt.Sprintf("pod %s/%s", c.Namespace, c.Pod)).reaching(devicesIn(n, c.Namespace)...)
}

// hiddenBundles returns unknown with the facts about containers if they don't show all of them, the unavailable ones
// first; otherwise nothing.
func hiddenBundles(listed []facts.Fact, what string) Answer {
	hidden := slices.DeleteFunc(slices.Clone(listed), facts.Fact.Known)
	if len(hidden) > 0 || !slices.ContainsFunc(listed, facts.Fact.OK) {
		return unknown(what, append(hidden, listed...)...)
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

// shortCleanup is how many seconds are too few for a VM with devices to end: the kernel
// unpins hundreds of GiB in tens of seconds.
const shortCleanup = 30

func shimCleanup(n *facts.Node) Answer {
	r := runtimes.Of(n)
	if found := damagedRuntimes(r); len(found) > 0 {
		return found
	}
	if !slices.ContainsFunc(r.Kata(), func(h runtimes.Handler) bool { return h.Engine == runtimes.Containerd }) {
		return notApplicable("containerd has no Kata handler", r.Files...)
	}
	limit := r.ShimCleanup
	seconds, ok := limit.Seconds()
	switch {
	case !limit.IsSet():
		return fail("containerd ends the wait after 5 s (its default)", limit.Fact())
	case !ok:
		return fail(limit.Fact().Value+" is not a duration: containerd does not start with it", limit.Fact())
	case seconds < shortCleanup:
		return fail(fmt.Sprintf("containerd ends the wait after %s; less than %d s is too short", limit.Text(), shortCleanup), limit.Fact())
	}
	return pass("containerd ends the wait after "+limit.Text(), limit.Fact())
}
