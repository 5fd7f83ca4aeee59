package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// runtimeNodeChecks are about the runtimes' files, NRI, the kubelet, and containers' access to the node.
func runtimeNodeChecks() []Check {
	return []Check{
		{ID: "RT-024", Judge: runtimeFiles},
		{ID: "RT-026", Judge: nriGuards},
		{ID: "RT-028", Judge: kubelet},
		{ID: "RT-027", Judge: tenantMounts},
		{ID: "RT-029", Judge: shimCleanup},
		{ID: "RT-031", Judge: restarted},
		{ID: "RT-032", Judge: unprivileged},
	}
}

// runtimeFiles checks each file and each directory above it: a user who may write to one of those can replace the
// file.
func runtimeFiles(n *facts.Node) Answer {
	r := runtimes.Of(n)
	if !r.Found() {
		return notApplicable("the node has no containerd or CRI-O configuration")
	}
	paths := listFiles(n, r)
	found, _ := accessible(n, toWrite(), paths)
	return found.or(pass(count(len(paths), "path")+" with the directories above", r.Files...))
}

// listFiles returns the files that the runtimes read and run, with the directories above, each once and sorted.
func listFiles(n *facts.Node, r *runtimes.Runtimes) []string {
	files := append(listPaths(r.Files), listPaths(r.Damaged)...)
	for _, h := range r.Handlers {
		files = append(files, absolute(h.Path.Text())...)
		if !h.IsKata() {
			continue
		}
		k := runtimes.LoadKata(n, &h)
		files = append(append(files, listPaths(k.Files)...), path.Join(path.Dir(k.File), "config.d"))
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

func listPaths(seen []facts.Fact) []string {
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
		return append(found, nriSocket(n, nri)...) // the damaged file may contain the settings
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

// nriSocket fails if other users than root may connect as a plugin. A user who may write to a directory above the
// socket can replace it.
func nriSocket(n *facts.Node, nri *runtimes.NRI) Answer {
	if nri.DisableConnections.On() || !nri.Enabled {
		return nil
	}
	var found Answer
	for _, name := range n.Parents(nri.SocketPath()) {
		stat, file := n.Stat(name)
		switch {
		// Until the runtime creates the socket, only the permissions of the directories above it are checked.
		case file.Status == facts.Absent:
		case !file.OK():
			return unknown("who can connect as an NRI plugin", file)
		default:
			found = append(found, othersMay(toWrite(), stat, file, "users other than root can reach NRI's socket: ")...)
		}
	}
	return found
}

func kubelet(n *facts.Node) Answer {
	k, ok := runtimes.FindKubelet(n)
	if !ok {
		return unseen(n, 0, "whether the node runs a kubelet").or(notApplicable("the node runs no kubelet"))
	}
	found := opens(&k)
	// Flags override the files.
	if !k.Runs && len(found) == 0 {
		found = unseen(n, 0, "with which flags the kubelet runs")
	}
	stat, dir := n.Stat(k.PodResourcesDir())
	switch {
	case !dir.Known():
		found = append(found, unknown("who can reach the directory of the pod-resources socket", dir)...)
	case dir.OK() && stat.Writers() != "":
		found = append(found, fail("users other than root can reach the directory of the pod-resources socket: "+stat.Writers(), dir)...)
	}
	return found.or(pass("no open port, no anonymous requests", k.Seen...))
}

// opens returns the fault of the kubelet's settings.
func opens(k *runtimes.Kubelet) Answer {
	switch {
	case len(k.Damaged) > 0:
		return unknown("the kubelet's configuration", k.Damaged...)
	case k.ReadOnlyPort != 0:
		return fail(fmt.Sprintf("read-only port %d shows all pods to everyone", k.ReadOnlyPort), k.Seen...)
	case k.Anonymous && k.AlwaysAllow:
		return fail("the kubelet allows everything without credentials", k.Seen...)
	case k.Anonymous:
		return fail("the kubelet accepts requests without credentials", k.Seen...)
	case k.AlwaysAllow:
		return fail("the kubelet allows everything with any credentials", k.Seen...)
	}
	return nil
}

// tenantContainers returns the containers in namespaces that have devices, and the facts about all containers.
func tenantContainers(n *facts.Node) ([]runtimes.Container, []facts.Fact) {
	all, listed := runtimes.Containers(n)
	return slices.DeleteFunc(slices.Clone(all), func(c runtimes.Container) bool { return len(devicesIn(n, c.Info.Namespace)) == 0 }), listed
}

// inContainer fails for a mount, device or privilege of a tenant's container.
func inContainer(n *facts.Node, c *runtimes.Container, has, text string) Answer {
	return fail(text, facts.Fact{Path: c.Bundle, Value: has, How: "read"}).
		object(fmt.Sprintf("pod %s/%s", c.Info.Namespace, c.Info.Pod)).reaching(devicesIn(n, c.Info.Namespace)...)
}

// hiddenBundles returns an unknown finding if the facts don't show all containers, with the facts, the unavailable ones first.
// Otherwise, it returns none.
func hiddenBundles(listed []facts.Fact, what string) Answer {
	hidden := slices.DeleteFunc(slices.Clone(listed), facts.Fact.Known)
	if len(hidden) > 0 || !slices.ContainsFunc(listed, facts.Fact.OK) {
		return unknown(what, append(hidden, listed...)...)
	}
	return nil
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

// shortCleanup is the number of seconds that is too short for a VM with devices to end: the kernel unpins hundreds
// of GiB in tens of seconds.
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
