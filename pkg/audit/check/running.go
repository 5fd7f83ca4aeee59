package check

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/containerd"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// runningChecks compare what runs with what files say.
func runningChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-031", Title: "Ensure that containerd runs with the configuration that its files have", Severity: isolation.High,
			Why:     "containerd reads its files only when it starts. A hardened file may have no effect yet, or hide what containerd still does.",
			Fix:     "`systemctl restart containerd` (containers keep running), then audit again",
			Verify:  "crictl info | jq '.config.containerd.runtimes, .config.cdiSpecDirs'; containerd config dump",
			Sources: []string{"containerd 2.4: internal/cri/server/status.go", "CRI: RuntimeService.Status"},
		}, Judge: restarted},
		{Rule: finding.Rule{
			ID: "RT-032", Title: "Ensure that tenants run no privileged container outside a VM", Severity: isolation.Critical,
			Why:     "Outside a VM, a privileged container is root on the node and reaches every tenant's device.",
			Fix:     "delete the pod, and enforce the Pod Security Standard `baseline` in namespaces of tenants",
			Verify:  "crictl ps -o json | jq -r '.containers[].id' | xargs -n1 crictl inspect | jq '.info.runtimeType, .info.privileged'",
			Sources: []string{"Kubernetes: Pod Security Standards"},
		}, Judge: unprivileged},
	}
}

// vfioNodeChecks compare the VFIO nodes of containers with what the journal gives them.
func vfioNodeChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-021", Title: "Ensure that a container has VFIO nodes of its own namespace's claims only", Severity: isolation.High,
			Why:     "Whoever opens the node controls the device. NRI does not check containers of other clients of containerd, or without the plugin.",
			Fix:     "end the named container, and find out what started it",
			Verify:  "ctr namespaces ls; ctr -n NAMESPACE containers info ID | jq '.Spec.linux.devices'",
			Sources: []string{"Linux: Documentation/driver-api/vfio.rst"},
		}, Judge: ownNodes},
	}
}

// restarted compares what the running containerd was configured with with what its files say now.
func restarted(n *facts.Node) Answer {
	r := runtimes.Of(n)
	running, asked := runtimes.Running(n)
	switch {
	case running == nil && asked.Status == facts.Absent:
		return notApplicable("no containerd was asked: none runs, or the copy of the node was made without its answer", asked)
	case running == nil:
		return unknown("what containerd runs with", asked)
	case running.CRI == nil:
		return notApplicable("containerd serves no CRI", asked)
	}
	found := damagedRuntimes(r)
	for i := range r.Handlers {
		if h := &r.Handlers[i]; h.Engine == runtimes.Containerd {
			found = append(found, outdated(h, running.CRI, asked)...)
		}
	}
	found = append(found, leftOver(r, running.CRI, asked)...)
	found = append(found, outdatedDirs(r, running.CRI, asked)...)
	if r.NRI != nil && r.NRI.Enabled && !running.HasNRI() {
		found = append(found, fail("containerd has not loaded NRI, which its files enable", asked, r.NRI.Switch.Fact())...)
	}
	if len(found) > 0 {
		return found
	}
	return pass(count(len(running.CRI.Handlers), "handler"), append([]facts.Fact{asked}, r.Files...)...)
}

// outdatedDirs compares where CDI specs are looked for. CRI-O's directories are among a node's that has both.
func outdatedDirs(r *runtimes.Runtimes, cri *containerd.CRI, asked facts.Fact) Answer {
	if slices.Equal(r.CDIDirs, cri.CDIDirs) || slices.ContainsFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Engine == runtimes.CRIO }) {
		return nil
	}
	text := fmt.Sprintf("containerd looks for CDI specs in %s. Its files say %s", strings.Join(cri.CDIDirs, " and "), strings.Join(r.CDIDirs, " and "))
	return fail(text, append([]facts.Fact{asked}, r.Files...)...)
}

// outdated says which settings of a handler the running containerd does not have.
func outdated(h *runtimes.Handler, cri *containerd.CRI, asked facts.Fact) Answer {
	live, ok := cri.Handlers[h.Name]
	if !ok {
		return fail(fmt.Sprintf("containerd does not have handler %s, which %s has", h.Name, h.Type.File), asked, h.Type.Fact()).object("handler " + h.Name)
	}
	var found Answer
	for _, c := range comparisons(h, &live) {
		if c.file != c.live {
			text := fmt.Sprintf("containerd runs handler %s with %s = %q. Its files say %q", h.Name, c.name, c.live, c.file)
			found = append(found, fail(text, asked, c.setting.Fact()).object("handler "+h.Name)...)
		}
	}
	return found
}

// comparison is a setting as a file and as containerd has it.
type comparison struct {
	name, file, live string
	setting          runtimes.Setting
}

// comparisons returns the settings of a handler that decide what a pod reaches. One that no file has is at its default.
func comparisons(h *runtimes.Handler, live *containerd.Handler) []comparison {
	text := func(name string, s runtimes.Setting, live string) comparison {
		return comparison{name, s.Text(), live, s}
	}
	list := func(name string, s runtimes.Setting, live []string) comparison {
		return comparison{name, strings.Join(s.List(), " "), strings.Join(live, " "), s}
	}
	flag := func(name string, s runtimes.Setting, live bool) comparison {
		return comparison{name, strconv.FormatBool(s.On()), strconv.FormatBool(live), s}
	}
	all := []comparison{
		text("runtime_type", h.Type, live.Type), text("runtime_path", h.Path, live.Path), text("ConfigPath", h.Config, live.Config),
		list("pod_annotations", h.PodAnnotations, live.PodAnnotations),
		list("container_annotations", h.ContainerAnnotations, live.ContainerAnnotations),
		flag("privileged_without_host_devices", h.PrivilegedWithoutHostDevices, live.PrivilegedWithoutHostDevices),
		flag("privileged_without_host_devices_all_devices_allowed", h.AllDevicesAllowed, live.AllDevicesAllowed),
	}
	sandboxer := text("sandboxer", h.Sandboxer, live.Sandboxer)
	if sandboxer.file == "" {
		sandboxer.file = podSandboxer
	}
	if sandboxer.live == "" {
		sandboxer.live = podSandboxer
	}
	return append(all, sandboxer)
}

// podSandboxer is containerd's default (internal/cri/config ValidateRuntimeConfig).
const podSandboxer = "podsandbox"

// leftOver names Kata's handlers that run, but that no file has any more.
func leftOver(r *runtimes.Runtimes, cri *containerd.CRI, asked facts.Fact) Answer {
	var found Answer
	for name, live := range cri.Handlers {
		known := slices.ContainsFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Name == name })
		if known || !strings.Contains(live.Type+live.Path, "kata") {
			continue
		}
		text := fmt.Sprintf("containerd still has handler %s, which none of its files has", name)
		found = append(found, fail(text, asked).seen(r.Files...).object("handler "+name)...)
	}
	slices.SortFunc(found, func(a, b finding.Finding) int { return strings.Compare(a.Object, b.Object) })
	return found
}

// unprivileged looks at containers in namespaces that have devices.
func unprivileged(n *facts.Node) Answer {
	if len(n.Tenancies) == 0 {
		return notApplicable("no tenant has a device")
	}
	containers, listed := runtimes.Containers(n)
	sandboxes, _ := runtimes.Sandboxes(n)
	var found Answer
	looked := 0
	for i := range containers {
		c := &containers[i]
		devices := devicesIn(n, c.Namespace)
		if len(devices) == 0 {
			continue
		}
		looked++
		if !c.Privileged || inVM(c, sandboxes) {
			continue
		}
		text := fmt.Sprintf("container %.12s of pod %s/%s is privileged and runs on the node's kernel", c.ID, c.Namespace, c.Pod)
		found = append(found, fail(text, facts.Fact{Path: c.Bundle, Value: "privileged", How: "read"}).
			object(fmt.Sprintf("pod %s/%s", c.Namespace, c.Pod)).reaching(devices...)...)
	}
	if hidden := hiddenBundles(listed); len(found) == 0 && len(hidden) > 0 {
		return unknown("whether tenants' containers are privileged", hidden...)
	}
	if len(found) > 0 {
		return found
	}
	return pass(count(looked, "container")+" of tenants", listed...)
}

// inVM reports whether a container is in a VM of Kata's: by its shim, or by its sandbox where only its bundle is known.
func inVM(c *runtimes.Container, sandboxes []runtimes.Sandbox) bool {
	if c.Runtime != "" {
		return strings.Contains(path.Base(c.Runtime), "kata")
	}
	return slices.ContainsFunc(sandboxes, func(s runtimes.Sandbox) bool { return s.ID == c.Sandbox })
}

// ownNodes looks at the VFIO nodes of all containers. The infrastructure's own privileged containers have all nodes of the
// node, and are left out: they are trusted with the node.
func ownNodes(n *facts.Node) Answer {
	containers, listed := allContainers(n)
	var found Answer
	looked := 0
	for i := range containers {
		c := &containers[i]
		if c.Privileged && len(devicesIn(n, c.Namespace)) == 0 {
			continue
		}
		looked++
		found = append(found, strangeNodes(n, c)...)
	}
	if hidden := hiddenBundles(listed); len(found) == 0 && len(hidden) > 0 {
		return unknown("which containers have VFIO nodes", hidden...)
	}
	if len(found) > 0 {
		return found
	}
	return pass(count(looked, "container"), listed...)
}

// allContainers returns the containers of pods and those without a pod, which only a running containerd reports.
func allContainers(n *facts.Node) ([]runtimes.Container, []facts.Fact) {
	containers, listed := runtimes.Containers(n)
	running, _ := runtimes.Running(n)
	if running == nil {
		return containers, listed
	}
	for i := range running.Containers {
		if c := running.Containers[i]; c.Namespace == "" {
			containers = append(containers, runtimes.Container{Container: c, Bundle: fmt.Sprintf("containerd: %s/%s", c.Space, c.ID)})
		}
	}
	return containers, listed
}

// strangeNodes says which VFIO nodes a container has of functions that no claim of its namespace has.
func strangeNodes(n *facts.Node, c *runtimes.Container) Answer {
	own := devicesIn(n, c.Namespace)
	var found Answer
	for _, node := range c.Devices {
		behind := n.NodeOf(node)
		strange := slices.ContainsFunc(behind, func(a pci.Address) bool { return !slices.Contains(own, a) })
		if !strange || slices.ContainsFunc(behind, func(a pci.Address) bool { return slices.Contains(own, a) }) {
			continue // a group's node leads to its main function and to what goes with it
		}
		text := fmt.Sprintf("%s has %s, which is %s. No claim of its namespace has it", whose(c), node, spelled(behind))
		found = append(found, fail(text, facts.Fact{Path: c.Bundle, Value: node, How: "read"}).object(whose(c)).reaching(behind...)...)
	}
	return found
}

// whose names a container by its pod, or by its namespace in containerd.
func whose(c *runtimes.Container) string {
	if c.Pod == "" {
		return fmt.Sprintf("container %s/%.12s of no pod", c.Space, c.ID)
	}
	return fmt.Sprintf("a container of pod %s/%s", c.Namespace, c.Pod)
}

func spelled(all []pci.Address) string {
	var words []string
	for _, a := range all {
		words = append(words, a.String())
	}
	return strings.Join(words, " and ")
}
