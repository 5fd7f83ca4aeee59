package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeNodeChecks are about the runtimes' files, NRI and the kubelet.
func runtimeNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-024", Title: "Only root changes what runtimes read and run", Severity: isolation.Critical,
			Why:    "whoever writes a configuration, shim, VMM, kernel or image of Kata's runs as root on the node or in every tenant's VM",
			Fix:    "`chown root:root` and `chmod go-w` the file or the directory that is named",
			Verify: "namei -l /etc/containerd/config.toml /opt/kata/bin/containerd-shim-kata-v2",
		}, Judge: runtimeFiles},
		{Rule: finding.Rule{
			ID: "RT-026", Title: "NRI lets no plugin change containers unseen, and none be left out", Severity: isolation.High,
			Why: "an NRI plugin can give any container any device; and where ours is away and nothing asks for it, containers start without its check",
			Fix: "in containerd's section for NRI: `disable = false`, `default_validator.enable = true`, no tolerate_missing_plugins_annotation; socket and " +
				"plugin directory of root alone. The annotation required-plugins.noderesource.dev, which the chart's policy sets, asks for the plugin",
			Verify:  "containerd config dump | grep -A25 io.containerd.nri.v1.nri; ls -ld /var/run/nri /var/run/nri/nri.sock /opt/nri/plugins",
			Sources: []string{"containerd 2.4: docs/NRI.md", "nri v0.12: plugins/default-validator"},
		}, Judge: nriGuards},
		{Rule: finding.Rule{
			ID: "RT-028", Title: "The kubelet answers nobody unknown", Severity: isolation.Medium,
			Why: "the kubelet's API tells which pod has which device, and lets whoever it takes for allowed exec into tenants' pods",
			Fix: "in the kubelet's configuration: `readOnlyPort: 0`, `authentication.anonymous.enabled: false`, `authorization.mode: Webhook`; the " +
				"directory pod-resources of root alone",
			Verify:  "grep -E 'readOnlyPort|anonymous|mode' -A1 /var/lib/kubelet/config.yaml; ls -ld /var/lib/kubelet/pod-resources",
			Sources: []string{"Kubernetes: KubeletConfiguration v1beta1"},
		}, Judge: kubelet},
	}
}

// runtimeFiles looks at each file and at each directory above it: who may write to
// one of those may put another file in its place.
func runtimeFiles(n *facts.Node) []finding.Finding {
	r := runtimes.Of(n)
	if !r.Found() {
		return notApplicable("the node has no configuration of containerd or CRI-O")
	}
	var found []finding.Finding
	var silent []facts.Fact
	paths := filesOf(n, r)
	for _, name := range paths {
		stat, file := n.Stat(name)
		switch {
		case file.Status == facts.Absent:
		case !file.OK():
			silent = append(silent, file)
		case stat.Writers() != "":
			f := fail(fmt.Sprintf("%s: %s", file.Path, stat.Writers()), file)
			f[0].Object = file.Path
			found = append(found, f...)
		}
	}
	if len(silent) > 0 {
		found = append(found, unknown("who may write to "+count(len(silent), "path"), silent...)...)
	}
	if len(found) > 0 {
		return found
	}
	return pass(count(len(paths), "path")+" with the directories above", r.Files...)
}

// filesOf returns what the runtimes read and run, with the directories above, each
// once and sorted.
func filesOf(n *facts.Node, r *runtimes.Runtimes) []string {
	var files []string
	for _, f := range append(slices.Clone(r.Files), r.Damaged...) {
		files = append(files, f.Path)
	}
	for _, h := range r.Handlers {
		files = append(files, absolute(h.Path.Text())...)
		if !h.IsKata() {
			continue
		}
		k := runtimes.KataOf(n, &h)
		for _, f := range k.Files {
			files = append(files, f.Path)
		}
		files = append(files, path.Join(path.Dir(k.File), "config.d"))
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

// absolute returns a path, if it is one.
func absolute(name string) []string {
	if !strings.HasPrefix(name, "/") {
		return nil
	}
	return []string{name}
}

func nriGuards(n *facts.Node) []finding.Finding {
	r := runtimes.Of(n)
	found := damagedRuntimes(r)
	switch {
	case r.NRI == nil:
		return notApplicable("the node has no configuration of containerd or CRI-O")
	case len(r.Kata()) == 0 && len(found) == 0:
		return notApplicable("the node has no handler of Kata's", r.Files...)
	}
	nri := r.NRI
	switch {
	case !nri.Enabled:
		found = append(found, fail("NRI is off: the plugin sees no container", nri.Switch.Fact())...)
	case !nri.Validator.On():
		found = append(found, fail("NRI's validator is off: containers start without the plugin where it is away", nri.Validator.Fact())...)
	}
	if nri.Tolerate.Text() != "" {
		text := fmt.Sprintf("pods with the annotation %s start without the plugins that are required", nri.Tolerate.Text())
		found = append(found, fail(text, nri.Tolerate.Fact())...)
	}
	found = append(found, nriSocket(n, nri)...)
	if len(found) > 0 {
		return found
	}
	return pass("NRI and its validator are on", says(nri.Switch, nri.Validator, nri.DisableConnections, nri.RequiredPlugins)...)
}

// nriSocket looks at who may connect as a plugin. Whoever may write to a directory
// above may put a socket of its own there.
func nriSocket(n *facts.Node, nri *runtimes.NRI) []finding.Finding {
	if nri.DisableConnections.On() || !nri.Enabled {
		return nil
	}
	var found []finding.Finding
	for _, name := range n.Parents(nri.SocketPath()) {
		stat, file := n.Stat(name)
		switch {
		case file.Status == facts.Absent:
			continue
		case !file.OK():
			return unknown("who may connect as a plugin", file)
		case stat.Writers() != "":
			f := fail(fmt.Sprintf("others than root reach NRI's socket: %s: %s", file.Path, stat.Writers()), file)
			f[0].Object = file.Path
			found = append(found, f...)
		}
	}
	return found
}

func kubelet(n *facts.Node) []finding.Finding {
	k, ok := runtimes.KubeletOf(n)
	if !ok {
		return notApplicable("the node runs no kubelet")
	}
	var found []finding.Finding
	switch {
	case len(k.Damaged) > 0:
		found = unknown("what the kubelet answers", k.Damaged...)
	case k.ReadOnlyPort != 0:
		found = fail(fmt.Sprintf("port %d tells everybody of all pods", k.ReadOnlyPort), k.Seen...)
	case k.Anonymous && k.AlwaysAllow:
		found = fail("whoever reaches the kubelet may do everything", k.Seen...)
	case k.Anonymous:
		found = fail("the kubelet takes requests without credentials", k.Seen...)
	case k.AlwaysAllow:
		found = fail("whoever has any credentials may do everything", k.Seen...)
	}
	stat, dir := n.Stat("var/lib/kubelet/pod-resources")
	if dir.OK() && stat.Writers() != "" {
		found = append(found, fail("others than root reach the directory of the pod-resources socket: "+stat.Writers(), dir)...)
	}
	if len(found) > 0 {
		return found
	}
	return pass("no open port, no anonymous requests", k.Seen...)
}
