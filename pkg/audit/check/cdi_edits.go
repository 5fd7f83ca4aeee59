package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

// specsAreHarmless lists what a spec does besides devices, where that is not known
// to be in order.
func specsAreHarmless(n *facts.Node) []finding.Finding {
	return judgeSpecs(n, "what is injected", func(s *facts.Spec) []finding.Finding {
		var odd []string
		for _, edits := range s.Edits() {
			odd = append(odd, oddEdits(s.Content.Kind, edits)...)
		}
		if len(odd) == 0 {
			return nil
		}
		slices.Sort(odd)
		odd = slices.Compact(odd)
		seen := facts.Fact{Path: s.File.Path, Value: strings.Join(odd, "; "), How: "read"}
		return reaching(n, s, fail(fmt.Sprintf("a spec of %s brings %s", orElse(s.Content.Kind, "no kind"), shorten(odd)), seen))
	})
}

// shorten names the first few.
func shorten(all []string) string {
	const few = 3
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}

// oddEdits returns what is not known to be in order. The plugin's own specs have
// nothing but nodes and the address of an interface.
func oddEdits(kind string, e *cdispecs.ContainerEdits) []string {
	var odd []string
	for _, h := range e.Hooks {
		if h != nil && (kind == cdi.Kind || !knownHook(h)) {
			odd = append(odd, fmt.Sprintf("the %s hook %s", h.HookName, h.Path))
		}
	}
	for _, m := range e.Mounts {
		if m != nil && (kind == cdi.Kind || isSensitive(m.HostPath)) {
			odd = append(odd, "a mount of "+m.HostPath)
		}
	}
	for _, env := range e.Env {
		name, _, _ := strings.Cut(env, "=")
		if changesPrograms(name) || kind == cdi.Kind && !strings.HasPrefix(name, "KATA_VFIO_") {
			odd = append(odd, "the variable "+name)
		}
	}
	return odd
}

// knownHook reports whether a hook is one of NVIDIA's container toolkit, at a place
// where its packages or its operator put it.
func knownHook(h *cdispecs.Hook) bool {
	name := path.Base(h.Path)
	at := slices.Contains([]string{"/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit"}, path.Dir(path.Clean(h.Path)))
	return at && (name == "nvidia-ctk" || name == "nvidia-cdi-hook")
}

// isSensitive reports whether a mount brings what opens the node: its root,
// configuration, devices, or the sockets of its services.
func isSensitive(host string) bool {
	host = path.Clean(host)
	if host == "/" || strings.HasSuffix(host, ".sock") && !strings.HasPrefix(host, "/run/nvidia") && !strings.HasPrefix(host, "/var/run/nvidia") {
		return true
	}
	for _, dir := range []string{"/etc/kubernetes", "/root", "/home", "/boot", "/proc", "/sys", "/var/lib/kubelet/pki"} {
		if host == dir || strings.HasPrefix(host, dir+"/") {
			return true
		}
	}
	return slices.Contains([]string{"/dev", "/etc", "/run", "/var", "/var/run", "/var/lib", "/var/lib/kubelet", "/var/lib/containerd", "/usr"}, host)
}

// changesPrograms reports whether a variable has the container's programs load
// other code (ld.so(8)).
func changesPrograms(name string) bool {
	return name == "LD_PRELOAD" || name == "LD_AUDIT" || name == "PATH"
}
