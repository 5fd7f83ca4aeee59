package check

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

// restarted compares the configuration of the running containerd with its files.
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
	if damaged := damagedRuntimes(r); len(damaged) > 0 {
		return damaged // the content of its files is unknown
	}
	found := over(r.Handlers, func(h runtimes.Handler) Answer {
		if h.Engine != runtimes.Containerd {
			return nil
		}
		return outdated(&h, running.CRI, asked)
	})
	found = slices.Concat(found, leftOver(r, running.CRI, asked), outdatedDirs(r, running.CRI, asked))
	if r.NRI != nil && r.NRI.Enabled && !running.HasNRI() {
		found = append(found, fail("containerd has not loaded NRI, which its files enable", asked, r.NRI.Switch.Fact())...)
	}
	return found.or(pass(count(len(running.CRI.Handlers), "handler"), append([]facts.Fact{asked}, r.Files...)...))
}

// outdatedDirs compares the directories of CDI specs. On a node with both runtimes, CDIDirs also has CRI-O's directories, so it
// can't be compared.
func outdatedDirs(r *runtimes.Runtimes, cri *facts.CRI, asked facts.Fact) Answer {
	// The order matters, because specs in later directories take precedence (CDI's pkg/cdi/spec-dirs.go).
	if slices.Equal(r.CDIDirs, cri.CDIDirs) || slices.ContainsFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Engine == runtimes.CRIO }) {
		return nil
	}
	text := fmt.Sprintf("containerd looks for CDI specs in %s. Its files say %s", strings.Join(cri.CDIDirs, " and "), strings.Join(r.CDIDirs, " and "))
	return fail(text, append([]facts.Fact{asked}, r.Files...)...)
}

// outdated fails for each setting of a handler's files that the running containerd does not have.
func outdated(h *runtimes.Handler, cri *facts.CRI, asked facts.Fact) Answer {
	live, ok := cri.Handlers[h.Name]
	if !ok {
		return fail(fmt.Sprintf("containerd does not have handler %s, which %s has", h.Name, h.Type.File), asked, h.Type.Fact()).ofHandler(h)
	}
	return over(comparisons(h, &live), func(c comparison) Answer {
		if c.file == c.live {
			return nil
		}
		text := fmt.Sprintf("containerd runs handler %s with %s = %q. Its files say %q", h.Name, c.name, c.live, c.file)
		return fail(text, asked, c.setting.Fact()).ofHandler(h)
	})
}

// comparison is a setting in a file and in the running containerd.
type comparison struct {
	name, file, live string
	setting          runtimes.Setting
}

// comparisons returns the settings of a handler that decide which devices a pod reaches. A setting that no file has
// is at its default.
func comparisons(h *runtimes.Handler, live *facts.CRIHandler) []comparison {
	list := func(name string, s runtimes.Setting, live []string) comparison {
		return comparison{name, strings.Join(s.List(), " "), strings.Join(live, " "), s}
	}
	flag := func(name string, s runtimes.Setting, live bool) comparison {
		return comparison{name, strconv.FormatBool(s.On()), strconv.FormatBool(live), s}
	}
	return []comparison{
		{"runtime_type", h.Type.Text(), live.Type, h.Type},
		{"runtime_path", h.Path.Text(), live.Path, h.Path},
		{"ConfigPath", h.Config.Text(), live.Config, h.Config},
		list("pod_annotations", h.PodAnnotations, live.PodAnnotations),
		list("container_annotations", h.ContainerAnnotations, live.ContainerAnnotations),
		flag("privileged_without_host_devices", h.PrivilegedWithoutHostDevices, live.PrivilegedWithoutHostDevices),
		flag("privileged_without_host_devices_all_devices_allowed", h.AllDevicesAllowed, live.AllDevicesAllowed),
		{"sandboxer", cmp.Or(h.Sandboxer.Text(), podSandboxer), cmp.Or(live.Sandboxer, podSandboxer), h.Sandboxer},
	}
}

// podSandboxer is containerd's default (internal/cri/config ValidateRuntimeConfig).
const podSandboxer = "podsandbox"

// leftOver names Kata's handlers that the running containerd has, but that are in no file.
func leftOver(r *runtimes.Runtimes, cri *facts.CRI, asked facts.Fact) Answer {
	return over(slices.Sorted(maps.Keys(cri.Handlers)), func(name string) Answer {
		live := cri.Handlers[name]
		known := slices.ContainsFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Name == name })
		if known || !strings.Contains(live.Type+live.Path, "kata") {
			return nil
		}
		return fail(fmt.Sprintf("containerd still has handler %s, which none of its files has", name), asked).seen(r.Files...).object("handler " + name)
	})
}

// unprivileged looks at containers in namespaces that have devices.
func unprivileged(n *facts.Node) Answer {
	if len(n.Tenancies) == 0 {
		return notApplicable("no tenant has a device")
	}
	containers, listed := tenantContainers(n)
	sandboxes, _ := runtimes.Sandboxes(n)
	return over(containers, func(c runtimes.Container) Answer {
		if !c.Info.Privileged || inVM(&c, sandboxes) {
			return nil
		}
		return inContainer(n, &c, "privileged", fmt.Sprintf("container %.12s of pod %s/%s is privileged and runs on the node's kernel", c.Info.ID, c.Info.Namespace, c.Info.Pod))
	}).or(hiddenBundles(listed, "whether tenants' containers are privileged")).or(pass(count(len(containers), "container")+" of tenants", listed...))
}

// inVM reports whether a container is in a VM of Kata's, by its shim or, if only its bundle is known, by its sandbox.
func inVM(c *runtimes.Container, sandboxes []runtimes.Sandbox) bool {
	if c.Info.Runtime != "" {
		return strings.Contains(path.Base(c.Info.Runtime), "kata")
	}
	return slices.ContainsFunc(sandboxes, func(s runtimes.Sandbox) bool { return s.Kata.ID == c.Info.Sandbox })
}
